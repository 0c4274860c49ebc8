#include "lockstep/runtime/base/net/channel_identity.h"

#include <algorithm>

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

/// The first bytes that a server reads of a stranger, besides OpenSSL's own.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  if (const auto identity = decode_identity(bytes))
    expect(std::ranges::equal(encode_identity(*identity), bytes), "the bytes again");
  return 0;
}

}  // namespace lockstep::fuzz
