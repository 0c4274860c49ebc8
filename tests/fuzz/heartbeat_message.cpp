#include "lockstep/runtime/workers/heartbeat_message.h"

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

const JobToken& token() {
  static const JobToken token = JobToken::from_text("a secret of the job's processes");
  return token;
}

const HeartbeatSender& sender() {
  static const HeartbeatSender sender{.rank = 3};
  return sender;
}

/// Only holders of the secret can write a packet: changed packets are refused, accepted ones were sealed.
void check_packet(std::span<const uint8_t> packet) {
  static HeartbeatSeal receiver(token(), sender());
  static HeartbeatSeal other(JobToken::from_text("another"), sender());
  const auto claimed = claimed_heartbeat_sender(packet);
  const auto message = receiver.open(packet);
  if (!message) return;
  expect(claimed == sender().rank && message->sender == sender().rank, "the sender's packets only");
  expect(std::ranges::equal(HeartbeatSeal(token(), sender()).seal(*message), packet), "the packet again");
  std::vector<uint8_t> changed(packet.begin(), packet.end());
  changed[changed.back() % changed.size()] ^= 1;
  expect(!receiver.open(changed), "no packet that was changed");
  expect(!other.open(packet), "no packet of another job");
}

/// A packet from a process that has the secret but sends a header and fields that Lockstep would not.
std::vector<uint8_t> sealed(std::span<const uint8_t> header, std::span<const uint8_t> fields) {
  static AesGcm cipher(derive_heartbeat_key(token(), sender()));
  AesGcm::Nonce nonce{};
  std::copy(header.end() - nonce.size(), header.end(), nonce.begin());
  std::vector<uint8_t> packet(header.begin(), header.end());
  const auto text = cipher.seal(nonce, header, fields);
  packet.insert(packet.end(), text.begin(), text.end());
  return packet;
}

void check_token(const std::string& digits) {
  const auto read = accepted<InvalidArgument>([&] { return JobToken::from_hex(digits); }, expect_plain_line);
  if (!read) return;
  std::string lower = digits;
  for (char& digit : lower)
    digit = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  expect(read->hex() == lower, "the same digits");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_packet({data, size});
  check_token(std::string(text_of(data, size)));
  const std::span bytes(data, size);
  if (size >= kHeartbeatHeaderBytes)
    check_packet(sealed(bytes.first(kHeartbeatHeaderBytes), bytes.subspan(kHeartbeatHeaderBytes)));
  return 0;
}

}  // namespace lockstep::fuzz
