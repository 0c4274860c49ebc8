#include "lockstep/runtime/workers/heartbeat_message.h"

#include <algorithm>

#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr uint32_t kHeartbeatMagic = 0x4248534C;  // "LSHB"
constexpr uint16_t kHeartbeatVersion = 1;
constexpr size_t kHeartbeatFieldBytes = std::tuple_size_v<HeartbeatPacket> - std::tuple_size_v<JobToken::Tag>;

}  // namespace

HeartbeatPacket seal_heartbeat(const HeartbeatMessage& message, const JobToken& token) {
  LittleEndianWriter writer;
  writer.write(kHeartbeatMagic);
  writer.write(kHeartbeatVersion);
  writer.write(static_cast<uint8_t>(message.kind));
  writer.write(static_cast<uint8_t>(message.reason));
  writer.write(message.incarnation);
  writer.write(message.sequence);
  writer.write(message.sender);
  writer.write(message.receiver);
  writer.write(message.lost);
  const JobToken::Tag tag = token.tag(writer.bytes());
  HeartbeatPacket packet{};
  std::copy(tag.begin(), tag.end(), std::copy(writer.bytes().begin(), writer.bytes().end(), packet.begin()));
  return packet;
}

std::optional<HeartbeatMessage> open_heartbeat(std::span<const uint8_t> packet, const JobToken& token) {
  if (packet.size() != std::tuple_size_v<HeartbeatPacket>) return std::nullopt;
  const auto fields = packet.first<kHeartbeatFieldBytes>();
  if (!token.verify(fields, packet.subspan<kHeartbeatFieldBytes>())) return std::nullopt;

  LittleEndianReader reader(fields);
  if (reader.read<uint32_t>() != kHeartbeatMagic) return std::nullopt;
  if (reader.read<uint16_t>() != kHeartbeatVersion) return std::nullopt;
  const auto kind = reader.read<uint8_t>();
  const auto reason = reader.read<uint8_t>();
  if (kind > static_cast<uint8_t>(HeartbeatKind::kLeavingHeard)) return std::nullopt;
  if (reason > static_cast<uint8_t>(LossReason::kFailed)) return std::nullopt;
  HeartbeatMessage message;
  message.kind = static_cast<HeartbeatKind>(kind);
  message.reason = static_cast<LossReason>(reason);
  message.incarnation = reader.read<uint64_t>();
  message.sequence = reader.read<uint64_t>();
  message.sender = reader.read<int32_t>();
  message.receiver = reader.read<int32_t>();
  message.lost = reader.read<int32_t>();
  return message;
}

}  // namespace lockstep
