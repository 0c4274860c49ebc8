#pragma once

#include <cstdint>

namespace lockstep {

/// How gradients are packed into buckets, each of which is summed by one all-reduce. Sizes are in bytes of
/// gradients.
///
/// Example:
///
///     MirroredStrategy strategy({}, {.buckets = {.first_bucket_bytes = 256 << 10, .bucket_bytes = 50 <<
///     20}});
struct BucketOptions {
  int64_t first_bucket_bytes = 1 << 20;  ///< Small, so that the first sums start early in backward.
  int64_t bucket_bytes = 25 << 20;       ///< A bucket is closed once it has reached this size.
};

}  // namespace lockstep
