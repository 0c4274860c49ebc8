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

/// Only holders of the secret can write a packet: changed packets are refused, accepted ones were sealed.
void check_packet(std::span<const uint8_t> packet) {
  const auto message = open_heartbeat(packet, token());
  if (!message) return;
  expect(std::ranges::equal(seal_heartbeat(*message, token()), packet), "the packet again");
  std::vector<uint8_t> changed(packet.begin(), packet.end());
  changed[changed[20] % changed.size()] ^= 1;
  expect(!open_heartbeat(changed, token()), "no packet that was changed");
  expect(!open_heartbeat(packet, JobToken::from_text("another")), "no packet of another job");
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
  // A packet from a process that has the secret but sends fields that Lockstep would not.
  std::vector<uint8_t> sealed(data, data + size);
  const auto tag = token().tag(sealed);
  sealed.insert(sealed.end(), tag.begin(), tag.end());
  check_packet(sealed);
  return 0;
}

}  // namespace lockstep::fuzz
