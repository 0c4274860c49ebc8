#pragma once

#include <cstdint>

namespace lockstep {

/// How gradients are packed into buckets. Each bucket is summed by one all-reduce. Sizes are in bytes of
/// gradients.
///
/// Example:
///
///     const BucketOptions buckets{.first_bucket_bytes = 256 << 10, .bucket_bytes = 50 << 20};
///     MirroredStrategy strategy({}, {.buckets = buckets});
struct BucketOptions {
  int64_t first_bucket_bytes = 1 << 20;  ///< Small, so that the first sums start early in backward.
  int64_t bucket_bytes = 25 << 20;       ///< A bucket is closed once it has reached this size.
};

}  // namespace lockstep
