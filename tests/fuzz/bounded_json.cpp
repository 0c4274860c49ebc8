#include "lockstep/runtime/base/internal/bounded_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kMaxDepth = 4;

size_t depth_of(const nlohmann::json& value) {
  if (!value.is_structured()) return 0;
  size_t depth = 0;
  for (const auto& element : value) depth = std::max(depth, depth_of(element));
  return depth + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const BoundedJsonOptions options{.source = "fuzz", .max_depth = kMaxDepth};
  const auto read = [&](std::string_view json) {
    return accepted<InvalidArgument>([&] { return parse_bounded_json(json, options); },
                                     [](std::string_view message) {
                                       expect(message.starts_with("[fuzz] expected "), "the source's name");
                                       expect_plain_line(message);
                                     });
  };
  const auto value = read(text);
  if (!value) return 0;
  expect(depth_of(*value) <= kMaxDepth, "values within the limit of depth");
  const auto again = read(value->dump());
  expect(again && *again == *value, "the same value out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
