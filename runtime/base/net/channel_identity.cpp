#include "lockstep/runtime/base/net/channel_identity.h"

#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

// Changes with the protocol that follows the handshake, too.
constexpr std::string_view kChannelVersion = "lockstep channel 1";
constexpr size_t kMaxNameBytes = 64;

std::string read_name(LittleEndianReader& reader) {
  auto text = reader.read_text();
  if (text.size() > kMaxNameBytes) throw InvalidArgument("expected a shorter text");
  return text;
}

}  // namespace

std::vector<uint8_t> encode_identity(const ChannelIdentity& identity) {
  LittleEndianWriter writer;
  writer.write_text(kChannelVersion);
  for (const std::string* text : {&identity.purpose, &identity.client, &identity.server}) {
    if (text->size() > kMaxNameBytes)
      throw InvalidArgument("expected a text of " + std::to_string(kMaxNameBytes) +
                            " bytes or less, but got " + *text);
    writer.write_text(*text);
  }
  writer.write(identity.number);
  writer.write(identity.generation);
  return writer.take();
}

std::optional<ChannelIdentity> decode_identity(std::span<const uint8_t> bytes) {
  try {
    LittleEndianReader reader(bytes);
    if (reader.read_text() != kChannelVersion) return std::nullopt;
    ChannelIdentity identity;
    identity.purpose = read_name(reader);
    identity.client = read_name(reader);
    identity.server = read_name(reader);
    identity.number = reader.read<uint64_t>();
    identity.generation = reader.read<uint64_t>();
    if (reader.num_left() != 0) return std::nullopt;
    return identity;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

ChannelKey derive_channel_key(const JobToken& token, const ChannelIdentity& identity) {
  return token.derive_key(kChannelVersion, encode_identity(identity));
}

}  // namespace lockstep
