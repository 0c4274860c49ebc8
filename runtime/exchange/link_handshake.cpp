#include "lockstep/runtime/exchange/link_handshake.h"

#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr uint32_t kLinkMagic = 0x4C58534C;  // "LSXL"
constexpr uint16_t kLinkVersion = 1;
constexpr size_t kTagBytes = std::tuple_size_v<JobToken::Tag>;

LittleEndianWriter begin_message() {
  LittleEndianWriter writer;
  writer.write(kLinkMagic);
  writer.write(kLinkVersion);
  return writer;
}

/// All that was said before, so that a tag proves that as well.
std::vector<uint8_t> said(std::string_view role, std::span<const uint8_t> first,
                          std::span<const uint8_t> second) {
  std::vector<uint8_t> bytes(role.begin(), role.end());
  bytes.insert(bytes.end(), first.begin(), first.end());
  bytes.insert(bytes.end(), second.begin(), second.end());
  return bytes;
}

bool is_begun_right(LittleEndianReader& reader) {
  return reader.read<uint32_t>() == kLinkMagic && reader.read<uint16_t>() == kLinkVersion;
}

}  // namespace

std::vector<uint8_t> make_link_greeting() {
  auto writer = begin_message();
  for (const uint8_t byte : random_bytes()) writer.write(byte);
  return writer.take();
}

std::vector<uint8_t> make_link_hello(const JobToken& token, const LinkHello& hello,
                                     std::span<const uint8_t> greeting) {
  LittleEndianReader reader(greeting);
  if (!is_begun_right(reader) || greeting.size() != kLinkGreetingBytes)
    throw InvalidArgument("expected a worker of this version, but got another program");
  auto writer = begin_message();
  writer.write(hello.from);
  writer.write(hello.to);
  writer.write(hello.channel);
  writer.write(hello.generation);
  writer.write(static_cast<uint8_t>(hello.has_shared_memory));
  for (const uint8_t byte : random_bytes()) writer.write(byte);
  for (const uint8_t byte : token.tag(said("hello", greeting, writer.bytes()))) writer.write(byte);
  return writer.take();
}

std::optional<LinkHello> read_link_hello(const JobToken& token, std::span<const uint8_t> greeting,
                                         std::span<const uint8_t> hello) {
  if (hello.size() != kLinkHelloBytes) return std::nullopt;
  const auto fields = hello.first(kLinkHelloBytes - kTagBytes);
  LittleEndianReader reader(fields);
  if (!is_begun_right(reader)) return std::nullopt;
  // Nothing else is read before the tag has been verified.
  if (!token.verify(said("hello", greeting, fields), hello.last(kTagBytes))) return std::nullopt;
  LinkHello read;
  read.from = reader.read<uint32_t>();
  read.to = reader.read<uint32_t>();
  read.channel = reader.read<uint32_t>();
  read.generation = reader.read<uint64_t>();
  read.has_shared_memory = reader.read<uint8_t>() != 0;
  return read;
}

JobToken::Tag make_link_answer(const JobToken& token, std::span<const uint8_t> greeting,
                               std::span<const uint8_t> hello) {
  return token.tag(said("answer", greeting, hello));
}

}  // namespace lockstep
