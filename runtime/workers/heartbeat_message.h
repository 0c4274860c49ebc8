#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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
  uint64_t incarnation = 0;  ///< differs between starts of the job
  uint64_t sequence = 0;     ///< increases with every message of a sender
  int32_t sender = 0;
  int32_t receiver = kEveryRank;
  int32_t lost = kNoRank;  ///< rank that the sender has given up; its own if the sender has failed
  LossReason reason = LossReason::kNone;

  bool operator==(const HeartbeatMessage&) const = default;
};

/// The magic number, the version, the fields of HeartbeatMessage in little-endian order, and the tag of all
/// these bytes.
using HeartbeatPacket = std::array<uint8_t, 36 + std::tuple_size_v<JobToken::Tag>>;

HeartbeatPacket seal_heartbeat(const HeartbeatMessage& message, const JobToken& token);

/// Returns the message in a packet, or nullopt if the size or the tag is wrong or if seal_heartbeat() never
/// writes such fields. Reads no field before the tag has been verified.
std::optional<HeartbeatMessage> open_heartbeat(std::span<const uint8_t> packet, const JobToken& token);

}  // namespace lockstep
