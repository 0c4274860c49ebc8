#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/runtime/base/net/aes_gcm.h"
#include "lockstep/runtime/base/net/message_authentication.h"

namespace lockstep {

/// The purpose of a heartbeat message.
enum class HeartbeatKind : uint8_t {
  kBeat = 0,          ///< the sender is alive
  kLeaving = 1,       ///< the sender ends on purpose
  kLeavingHeard = 2,  ///< answers kLeaving
};

/// The reason why a process was given up.
enum class LossReason : uint8_t {
  kNone = 0,
  kEnded = 1,      ///< its host's kernel reports that no process holds its port
  kSilent = 2,     ///< nothing was heard from it
  kCutOff = 3,     ///< it reports that it hears nothing
  kFencedOff = 4,  ///< others gave it up, and it found out
  kFailed = 5      ///< it reports so itself
};

struct HeartbeatMessage {
  static constexpr int32_t kEveryRank = -1;
  static constexpr int32_t kNoRank = -1;

  HeartbeatKind kind = HeartbeatKind::kBeat;
  uint64_t sequence = 0;  ///< increases with every message of a sender
  int32_t sender = 0;
  int32_t receiver = kEveryRank;
  int32_t lost = kNoRank;  ///< rank that the sender has given up; its own if the sender has failed
  LossReason reason = LossReason::kNone;

  bool operator==(const HeartbeatMessage&) const = default;
};

/// A process as a sender of heartbeat messages, in one start of the job. Each sender has its own key.
struct HeartbeatSender {
  int32_t rank = 0;
  uint64_t incarnation = 0;   ///< differs between starts of the job
  std::string session{};      ///< random text that the process has made for this start
  std::string hub_session{};  ///< that of rank 0
};

/// Returns the key of the sender's messages: HKDF-SHA256 (RFC 5869) of the token, with the sender as info.
AesGcm::Key derive_heartbeat_key(const JobToken& token, const HeartbeatSender& sender);

/// The header, which is the magic number, the version, the sender and the sequence; the encrypted fields,
/// which are the kind, the reason, the receiver and the lost rank; and the tag of all these bytes. Numbers
/// are in little-endian order.
inline constexpr size_t kHeartbeatHeaderBytes = 18;
inline constexpr size_t kHeartbeatFieldBytes = 10;
using HeartbeatPacket = std::array<uint8_t, kHeartbeatHeaderBytes + kHeartbeatFieldBytes + AesGcm::kTagBytes>;

/// Returns the rank that sent the packet, if its tag is right, for the choice of the HeartbeatSeal; nullopt
/// if the size is wrong.
std::optional<int32_t> claimed_heartbeat_sender(std::span<const uint8_t> packet);

/// Seals one sender's messages, or opens them at a receiver, with AES-256-GCM (NIST SP 800-38D). Others can
/// neither read nor change them, and a recorded packet opens under the key of its own start of the job only.
/// The receiver drops repeated ones by their sequence (FailureDetector). Not thread-safe.
class HeartbeatSeal {
 public:
  HeartbeatSeal(const JobToken& token, const HeartbeatSender& sender);

  /// Seals a message of the sender. Throws InvalidArgument if its sequence is not above that of the message
  /// sealed before.
  HeartbeatPacket seal(const HeartbeatMessage& message);

  /// Returns the message in a packet, or nullopt if the size or the tag is wrong or if seal() never writes
  /// such fields. Until the tag has been verified, it uses nothing but the nonce.
  std::optional<HeartbeatMessage> open(std::span<const uint8_t> packet);

 private:
  int32_t sender_;
  std::optional<uint64_t> sealed_;  // sequence of the last message
  AesGcm cipher_;
};

}  // namespace lockstep
