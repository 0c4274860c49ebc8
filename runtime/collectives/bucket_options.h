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
  /// Small, so that the first sums start early in backward. 0: 1 MiB.
  int64_t first_bucket_bytes = 0;
  /// A bucket is closed once it has reached this size. 0: 25 MiB, or fewer between worker processes whose
  /// exchanges Lockstep carries out itself. It then follows from the number of workers and the costs of their
  /// connections, and describe() of the strategy tells the size.
  int64_t bucket_bytes = 0;

  /// Returns these sizes, with those of `others` in place of zeros.
  BucketOptions or_else(const BucketOptions& others) const {
    return {first_bucket_bytes > 0 ? first_bucket_bytes : others.first_bucket_bytes,
            bucket_bytes > 0 ? bucket_bytes : others.bucket_bytes};
  }
};

/// The sizes that zeros stand for if nothing is known of the connections.
inline constexpr BucketOptions kDefaultBuckets{.first_bucket_bytes = 1 << 20, .bucket_bytes = 25 << 20};

}  // namespace lockstep
