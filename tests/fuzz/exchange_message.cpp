#include "lockstep/runtime/exchange/exchange_message.h"

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/exchange/link_handshake.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

const JobToken& token() {
  static const JobToken token = JobToken::from_text("a secret of the job's processes");
  return token;
}

void check_header(std::span<const uint8_t> bytes) {
  const auto header = accepted<InvalidArgument>([&] { return decode_header(bytes); });
  if (!header) return;
  const auto written = encode(*header);
  expect(written.size() == kMessageHeaderBytes + text_bytes_of(bytes), "a header of the size that it tells");
  expect(std::ranges::equal(written, bytes.first(written.size())), "the header again");
}

/// Only holders of the token can write a hello.
void check_hello(std::span<const uint8_t> bytes) {
  static const auto greeting = make_link_greeting();
  expect(!read_link_hello(token(), greeting, bytes), "no hello for a greeting that was never sent");
  const auto hello = accepted<InvalidArgument>([&] { return make_link_hello(token(), {.from = 1}, bytes); });
  if (hello) expect(read_link_hello(token(), bytes, *hello).has_value(), "the hello to be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_header({data, size});
  check_hello({data, size});
  return 0;
}

}  // namespace lockstep::fuzz
