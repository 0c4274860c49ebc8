#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A parameter's elements in a bucket.
struct BucketSlot {
  size_t parameter = 0;  ///< index among the optimizer's parameters
  int64_t begin = 0;     ///< position of its first element in the bucket
  int64_t length = 0;    ///< number of its elements
};

/// The elements of one parameter that one rank owns, in memory order.
struct ParameterSlice {
  size_t parameter = 0;  ///< index among the optimizer's parameters
  int64_t offset = 0;    ///< first element, counted from the parameter's own
  int64_t length = 0;    ///< number of elements, at least 1
  size_t bucket = 0;
  int64_t position = 0;  ///< place of the first element in the bucket

  bool operator==(const ParameterSlice&) const = default;
};

/// A part of a bucket: those elements that one rank owns.
struct BucketPart {
  size_t bucket = 0;
  int64_t begin = 0;  ///< first element in the bucket
  int64_t length = 0;
};

/// Returns `numel` rounded up, so that `num_parts` equal parts of multiples of `unit` elements fill it.
int64_t numel_in_parts(int64_t numel, int num_parts, int64_t unit);

/// Cuts the slots of a bucket, which do not overlap, by a part of it. Leaves out those without an element in
/// the part.
std::vector<ParameterSlice> slices_of(const BucketPart& part, const std::vector<BucketSlot>& slots);

}  // namespace lockstep
