#include "lockstep/runtime/workers/heartbeat_message.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr std::string_view kHeartbeatKeyVersion = "lockstep heartbeat 2";
constexpr uint32_t kHeartbeatMagic = 0x4248534C;  // "LSHB"
constexpr uint16_t kHeartbeatVersion = 2;
constexpr size_t kSenderPosition = sizeof(kHeartbeatMagic) + sizeof(kHeartbeatVersion);

/// The header's sender and sequence: the fixed field and the counter of SP 800-38D, section 8.2.1.
///
/// No two messages share a key and a nonce. The key belongs to one process in one start of the job, since it
/// is derived from random text that the process has made for this start (HeartbeatSender::session): a process
/// that starts again has another key, whatever the others tell it. Under this key, HeartbeatSeal::seal() only
/// accepts increasing sequences, and 2^64 are never reached. A packet for several receivers is sealed once.
AesGcm::Nonce nonce_in(std::span<const uint8_t> header) {
  AesGcm::Nonce nonce{};
  static_assert(kSenderPosition + std::tuple_size_v<AesGcm::Nonce> == kHeartbeatHeaderBytes);
  std::copy(header.begin() + kSenderPosition, header.end(), nonce.begin());
  return nonce;
}

}  // namespace

AesGcm::Key derive_heartbeat_key(const JobToken& token, const HeartbeatSender& sender) {
  LittleEndianWriter info;
  info.write_text("heartbeat");
  info.write(sender.rank);
  info.write(sender.incarnation);
  info.write_text(sender.hub_session);
  info.write_text(sender.session);
  return token.derive_key(kHeartbeatKeyVersion, info.bytes());
}

std::optional<int32_t> claimed_heartbeat_sender(std::span<const uint8_t> packet) {
  if (packet.size() != std::tuple_size_v<HeartbeatPacket>) return std::nullopt;
  return LittleEndianReader(packet.subspan(kSenderPosition)).read<int32_t>();
}

HeartbeatSeal::HeartbeatSeal(const JobToken& token, const HeartbeatSender& sender)
    : sender_(sender.rank), cipher_(derive_heartbeat_key(token, sender)) {}

HeartbeatPacket HeartbeatSeal::seal(const HeartbeatMessage& message) {
  assert(message.sender == sender_);
  if (sealed_ && message.sequence <= *sealed_) {
    throw InvalidArgument("[HeartbeatSeal] expected a sequence above " + std::to_string(*sealed_) +
                          ", but got " + std::to_string(message.sequence));
  }
  sealed_ = message.sequence;
  LittleEndianWriter header;
  header.write(kHeartbeatMagic);
  header.write(kHeartbeatVersion);
  header.write(message.sender);
  header.write(message.sequence);
  LittleEndianWriter fields;
  fields.write(static_cast<uint8_t>(message.kind));
  fields.write(static_cast<uint8_t>(message.reason));
  fields.write(message.receiver);
  fields.write(message.lost);
  const auto sealed = cipher_.seal(nonce_in(header.bytes()), header.bytes(), fields.bytes());
  HeartbeatPacket packet{};
  std::ranges::copy(sealed, std::ranges::copy(header.bytes(), packet.begin()).out);
  return packet;
}

std::optional<HeartbeatMessage> HeartbeatSeal::open(std::span<const uint8_t> packet) {
  if (packet.size() != std::tuple_size_v<HeartbeatPacket>) return std::nullopt;
  const auto header = packet.first<kHeartbeatHeaderBytes>();
  const auto text = cipher_.open(nonce_in(header), header, packet.subspan<kHeartbeatHeaderBytes>());
  if (!text) return std::nullopt;

  HeartbeatMessage message;
  LittleEndianReader head(header);
  if (head.read<uint32_t>() != kHeartbeatMagic) return std::nullopt;
  if (head.read<uint16_t>() != kHeartbeatVersion) return std::nullopt;
  message.sender = head.read<int32_t>();
  message.sequence = head.read<uint64_t>();
  if (message.sender != sender_) return std::nullopt;
  LittleEndianReader fields(*text);
  const auto kind = fields.read<uint8_t>();
  const auto reason = fields.read<uint8_t>();
  if (kind > static_cast<uint8_t>(HeartbeatKind::kLeavingHeard)) return std::nullopt;
  if (reason > static_cast<uint8_t>(LossReason::kFailed)) return std::nullopt;
  message.kind = static_cast<HeartbeatKind>(kind);
  message.reason = static_cast<LossReason>(reason);
  message.receiver = fields.read<int32_t>();
  message.lost = fields.read<int32_t>();
  return message;
}

}  // namespace lockstep
