#include "lockstep/runtime/exchange/exchange_message.h"

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr uint32_t kMessageMagic = 0x4558534C;  // "LSXE"
constexpr uint16_t kMessageVersion = 1;

}  // namespace

std::vector<uint8_t> encode(const MessageHeader& header) {
  const auto text = std::string_view(header.text).substr(0, kMaxTextBytes);
  LittleEndianWriter writer;
  writer.write(kMessageMagic);
  writer.write(kMessageVersion);
  writer.write(static_cast<uint16_t>(text.size()));
  writer.write(header.generation);
  writer.write(header.sequence);
  writer.write(header.fingerprint);
  writer.write(header.number);
  writer.write(header.payload_bytes);
  for (const char letter : text) writer.write(static_cast<uint8_t>(letter));
  return writer.take();
}

size_t text_bytes_of(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  if (reader.read<uint32_t>() != kMessageMagic)
    throw InvalidArgument("expected a message, but got other bytes");
  if (const auto version = reader.read<uint16_t>(); version != kMessageVersion)
    throw InvalidArgument("expected version " + std::to_string(kMessageVersion) +
                          " of a message, but got version " + std::to_string(version));
  const size_t count = reader.read<uint16_t>();
  if (count > kMaxTextBytes)
    throw InvalidArgument("expected at most " + std::to_string(kMaxTextBytes) +
                          " bytes of text in a message, but got " + std::to_string(count));
  return count;
}

MessageHeader decode_header(std::span<const uint8_t> bytes) {
  const size_t text_bytes = text_bytes_of(bytes);
  LittleEndianReader reader(bytes.subspan(8));
  MessageHeader header;
  header.generation = reader.read<uint64_t>();
  header.sequence = reader.read<uint64_t>();
  header.fingerprint = reader.read<uint64_t>();
  header.number = reader.read<uint32_t>();
  header.payload_bytes = reader.read<uint64_t>();
  const auto text = reader.next(text_bytes);
  header.text.assign(text.begin(), text.end());
  return header;
}

uint64_t fingerprint_of(std::string_view text) {
  uint64_t hash = 14695981039346656037U;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return hash;
}

}  // namespace lockstep
