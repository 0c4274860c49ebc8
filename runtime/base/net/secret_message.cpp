#include "lockstep/runtime/base/net/secret_message.h"

#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

std::string_view bytes_text(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<uint8_t> read_proof(LittleEndianReader& reader) {
  const auto bytes = reader.next(reader.read<uint32_t>());
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> with_size(const std::vector<uint8_t>& message) {
  if (message.size() > kMaxSecretMessageBytes)
    throw InvalidArgument("expected a message of " + std::to_string(kMaxSecretMessageBytes) +
                          " bytes or less, but got one of " + std::to_string(message.size()));
  LittleEndianWriter writer;
  writer.write_text(bytes_text(message));
  return writer.take();
}

void expect_end(const LittleEndianReader& reader) {
  if (reader.num_left() != 0)
    throw InvalidArgument("expected the end of the message, but got " + std::to_string(reader.num_left()) +
                          " bytes more");
}

}  // namespace

std::vector<uint8_t> encode(const SecretRequest& request) {
  LittleEndianWriter writer;
  writer.write_text(request.job);
  writer.write_text(request.source);
  writer.write_text(bytes_text(request.proof));
  return with_size(writer.bytes());
}

std::vector<uint8_t> encode(const SecretReply& reply) {
  LittleEndianWriter writer;
  writer.write_text(bytes_text(reply.proof));
  writer.write_text(reply.secret);
  return with_size(writer.bytes());
}

size_t decode_secret_size(std::span<const uint8_t, kSecretSizeBytes> bytes) {
  const size_t size = LittleEndianReader(bytes).read<uint32_t>();
  if (size > kMaxSecretMessageBytes)
    throw InvalidArgument("expected a message of " + std::to_string(kMaxSecretMessageBytes) +
                          " bytes or less, but got one of " + std::to_string(size));
  return size;
}

SecretRequest decode_secret_request(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  SecretRequest request{.job = reader.read_text(), .source = reader.read_text()};
  request.proof = read_proof(reader);
  expect_end(reader);
  return request;
}

SecretReply decode_secret_reply(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  SecretReply reply{.proof = read_proof(reader), .secret = reader.read_text()};
  expect_end(reader);
  return reply;
}

}  // namespace lockstep
