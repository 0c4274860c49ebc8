#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/runtime/base/net/message_authentication.h"

namespace lockstep {

/// What a message of the heartbeat is for.
enum class HeartbeatKind : uint8_t {
  kBeat = 0,          ///< the sender lives
  kLeaving = 1,       ///< the sender ends on purpose
  kLeavingHeard = 2,  ///< answers kLeaving
};

/// Why a process was given up.
enum class LossReason : uint8_t {
  kNone = 0,
  kEnded = 1,      ///< its host's kernel says that no process holds its port
  kSilent = 2,     ///< nothing was heard from it
  kCutOff = 3,     ///< it says that it hears nothing
  kFencedOff = 4,  ///< it was given up by others, and has found out
  kFailed = 5      ///< it says so itself
};

struct HeartbeatMessage {
  static constexpr int32_t kEveryRank = -1;
  static constexpr int32_t kNoRank = -1;

  HeartbeatKind kind = HeartbeatKind::kBeat;
  uint64_t incarnation = 0;  ///< of the job: differs from one start of it to the next
  uint64_t sequence = 0;     ///< grows with every message of a sender
  int32_t sender = 0;
  int32_t receiver = kEveryRank;
  int32_t lost = kNoRank;  ///< the rank that the sender has given up; its own where it has failed
  LossReason reason = LossReason::kNone;

  bool operator==(const HeartbeatMessage&) const = default;
};

/// The magic number, the version, the fields above in little-endian order, and the tag of all that.
using HeartbeatPacket = std::array<uint8_t, 36 + std::tuple_size_v<JobToken::Tag>>;

HeartbeatPacket seal_heartbeat(const HeartbeatMessage& message, const JobToken& token);

/// The message in a packet; nullopt for another size, a wrong tag, and fields that no version of
/// seal_heartbeat() writes. Reads no field before the tag was found right.
std::optional<HeartbeatMessage> open_heartbeat(std::span<const uint8_t> packet, const JobToken& token);

}  // namespace lockstep
