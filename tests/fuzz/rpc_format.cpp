#include "lockstep/runtime/rpc/rpc_format.h"

#include <algorithm>
#include <limits>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

void check_frame(std::span<const uint8_t> bytes) {
  const auto frame = accepted<InvalidArgument>([&] { return decode_frame(bytes); }, expect_plain_line);
  if (!frame) return;
  expect(frame->head_bytes <= kMaxRpcHeadBytes, "a head that is not too large");
  expect(std::ranges::equal(encode_frame(*frame), bytes), "the frame again");
}

void check_head(std::span<const uint8_t> bytes) {
  const auto head = accepted<InvalidArgument>([&] { return decode_head(bytes); }, expect_plain_line);
  if (!head) return;
  expect(std::ranges::equal(encode_head(*head), bytes), "the head again");
  for (const auto& tensor : head->tensors)
    expect(std::ranges::all_of(tensor.sizes, [](int64_t size) { return size >= 0; }), "sizes of 0 or more");
  const auto size = accepted<InvalidArgument>([&] { return head->tensor_bytes(); }, expect_plain_line);
  expect(!size || *size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
         "a size that memory can have");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_frame({data, size});
  check_head({data, size});
  return 0;
}

}  // namespace lockstep::fuzz
