#include "lockstep/runtime/gradients/slice_layout.h"

#include <algorithm>

namespace lockstep {

int64_t numel_in_parts(int64_t numel, int num_parts, int64_t unit) {
  const int64_t step = num_parts * unit;
  return (numel + step - 1) / step * step;
}

std::vector<ParameterSlice> slices_of(const BucketPart& part, const std::vector<BucketSlot>& slots) {
  std::vector<ParameterSlice> slices;
  for (const BucketSlot& slot : slots) {
    const int64_t begin = std::max(slot.begin, part.begin);
    const int64_t end = std::min(slot.begin + slot.length, part.begin + part.length);
    if (begin >= end) continue;
    slices.push_back({.parameter = slot.parameter,
                      .offset = begin - slot.begin,
                      .length = end - begin,
                      .bucket = part.bucket,
                      .position = begin});
  }
  return slices;
}

}  // namespace lockstep
