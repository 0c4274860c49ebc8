#include "lockstep/runtime/heartbeat_message.h"

#include <algorithm>
#include <type_traits>

namespace lockstep {
namespace {

constexpr uint32_t kHeartbeatMagic = 0x4248534C;  // "LSHB"
constexpr uint16_t kHeartbeatVersion = 1;
constexpr size_t kHeartbeatFieldBytes = std::tuple_size_v<HeartbeatPacket> - std::tuple_size_v<JobToken::Tag>;

class LittleEndianWriter {
 public:
  explicit LittleEndianWriter(std::span<uint8_t> out) : out_(out) {}

  template <typename Integer>
  void write(Integer value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(Integer); ++i) out_[i] = static_cast<uint8_t>(bits >> (8 * i));
    out_ = out_.subspan(sizeof(Integer));
  }

 private:
  std::span<uint8_t> out_;
};

class LittleEndianReader {
 public:
  explicit LittleEndianReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer read() {
    std::make_unsigned_t<Integer> value = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      value = static_cast<std::make_unsigned_t<Integer>>(value | (uint64_t{bytes_[i]} << (8 * i)));
    }
    bytes_ = bytes_.subspan(sizeof(Integer));
    return static_cast<Integer>(value);
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace

HeartbeatPacket seal_heartbeat(const HeartbeatMessage& message, const JobToken& token) {
  HeartbeatPacket packet{};
  LittleEndianWriter writer(packet);
  writer.write(kHeartbeatMagic);
  writer.write(kHeartbeatVersion);
  writer.write(static_cast<uint8_t>(message.kind));
  writer.write(static_cast<uint8_t>(message.reason));
  writer.write(message.incarnation);
  writer.write(message.sequence);
  writer.write(message.sender);
  writer.write(message.receiver);
  writer.write(message.lost);
  const JobToken::Tag tag = token.tag(std::span(packet).first<kHeartbeatFieldBytes>());
  std::copy(tag.begin(), tag.end(), packet.begin() + kHeartbeatFieldBytes);
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
