#include "lockstep/runtime/base/net/secret_message.h"

#include <algorithm>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

/// Parses bytes, and expects the parsed message to be written as the same bytes.
template <typename Decode>
void check_message(std::span<const uint8_t> bytes, const Decode& decode) {
  const auto message = accepted<InvalidArgument>([&] { return decode(bytes); });
  if (!message) return;
  const std::vector<uint8_t> written = encode(*message);
  expect(decode_secret_size(std::span(written).first<kSecretSizeBytes>()) == bytes.size(), "their size");
  expect(std::ranges::equal(std::span(written).subspan(kSecretSizeBytes), bytes), "the bytes again");
}

}  // namespace

/// The first byte decides which end of a connection receives the others: the first task, which does not know
/// yet whose process has sent them, or a process that asks it for the secret.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > kMaxSecretMessageBytes) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  if ((data[0] & 1) == 0) {
    check_message(bytes, decode_secret_request);
  } else {
    check_message(bytes, decode_secret_reply);
  }
  return 0;
}

}  // namespace lockstep::fuzz
