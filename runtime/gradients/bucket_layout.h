#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"

namespace lockstep {

/// The properties of one parameter that the layout depends on.
struct BucketItem {
  int64_t bytes = 0;
  std::string key;  ///< dtype and device; the same for all items of a bucket
};

/// Packs items into buckets, in the order `order` in which their gradients arrive; a bucket is closed once it
/// has reached its size. Returns the buckets in the order in which they fill, which is also their launch
/// order. `order` must be a permutation of the indices of `items`.
std::vector<std::vector<size_t>> assign_buckets(const std::vector<BucketItem>& items,
                                                const std::vector<size_t>& order,
                                                const BucketOptions& options);

}  // namespace lockstep
