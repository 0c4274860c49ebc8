#include "lockstep/runtime/rpc/rpc_handshake.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

using Nonce = std::array<uint8_t, 32>;
using Deadline = StreamSocket::Clock::time_point;

constexpr uint32_t kHandshakeMagic = 0x4850534C;  // "LSPH"
constexpr uint16_t kHandshakeVersion = 1;
// Each end's first message: magic, version, nonce.
constexpr size_t kGreetingBytes = 4 + 2 + std::tuple_size_v<Nonce>;
constexpr size_t kTagBytes = std::tuple_size_v<JobToken::Tag>;
// The server's last message: whether it accepts the client, how much it accepts at once, tag.
constexpr size_t kAnswerBytes = 1 + 8 + kTagBytes;

std::vector<uint8_t> greeting() {
  LittleEndianWriter writer;
  writer.write(kHandshakeMagic);
  writer.write(kHandshakeVersion);
  for (const uint8_t byte : random_bytes()) writer.write(byte);
  return writer.take();
}

/// Throws InvalidArgument if the bytes are not a greeting.
void check_greeting(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  if (reader.read<uint32_t>() != kHandshakeMagic)
    throw InvalidArgument("expected the protocol of parameter servers, but got another");
  if (const auto version = reader.read<uint16_t>(); version != kHandshakeVersion)
    throw InvalidArgument("expected version " + std::to_string(kHandshakeVersion) +
                          " of the protocol, but got " + std::to_string(version));
}

void receive_all(StreamSocket& socket, std::span<uint8_t> bytes, Deadline deadline) {
  if (!socket.receive({bytes}, deadline))
    throw std::system_error(std::make_error_code(std::errc::connection_reset), "handshake");
}

/// Everything said so far, so that each end's tag also proves the other's words.
std::vector<uint8_t> said(std::string_view who, std::initializer_list<std::span<const uint8_t>> parts) {
  std::vector<uint8_t> bytes(who.begin(), who.end());
  for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

}  // namespace

JobToken job_token_of(const std::string& text) {
  return JobToken::from_text(text.empty() ? "no token" : text);
}

bool admit_client(StreamSocket& socket, const JobToken& token, uint64_t max_message_bytes,
                  Deadline deadline) {
  const auto own = greeting();
  socket.send({own}, deadline);
  std::array<uint8_t, kGreetingBytes + kTagBytes> hello{};
  // A foreign client may send less than a whole hello, and wait. So check the greeting first.
  receive_all(socket, std::span(hello).first(kGreetingBytes), deadline);
  const auto theirs = std::span<const uint8_t>(hello).first(kGreetingBytes);
  check_greeting(theirs);
  receive_all(socket, std::span(hello).subspan(kGreetingBytes), deadline);
  const bool is_known = token.verify(said("client", {own, theirs}), std::span(hello).subspan(kGreetingBytes));

  LittleEndianWriter answer;
  answer.write(static_cast<uint8_t>(is_known));
  answer.write(max_message_bytes);
  const auto tag = token.tag(said("server", {own, theirs, answer.bytes()}));
  socket.send({answer.bytes(), tag}, deadline);
  return is_known;
}

uint64_t meet_server(StreamSocket& socket, const JobToken& token, Deadline deadline) {
  std::array<uint8_t, kGreetingBytes> theirs{};
  receive_all(socket, theirs, deadline);
  try {
    check_greeting(theirs);
  } catch (const InvalidArgument& error) {
    throw ClusterError(error.what());
  }
  const auto own = greeting();
  const auto tag = token.tag(said("client", {theirs, own}));
  socket.send({own, tag}, deadline);

  std::array<uint8_t, kAnswerBytes> answer{};
  receive_all(socket, answer, deadline);
  const auto fields = std::span<const uint8_t>(answer).first(kAnswerBytes - kTagBytes);
  const auto proof = std::span<const uint8_t>(answer).subspan(kAnswerBytes - kTagBytes);
  LittleEndianReader reader(fields);
  // A server with another token may accept nobody, or anybody: neither shows that it is ours.
  if (reader.read<uint8_t>() != 1 || !token.verify(said("server", {theirs, own, fields}), proof))
    throw ClusterError("expected the job's token, but got another (LOCKSTEP_JOB_TOKEN)");
  return reader.read<uint64_t>();
}

}  // namespace lockstep
