#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"

namespace lockstep {

/// What the layout needs to know of one parameter.
struct BucketItem {
  int64_t bytes = 0;
  std::string key;  ///< dtype and device; a bucket holds one key only
};

/// Packs items, taken in `order` (the order in which their gradients arrive), into buckets: a bucket is
/// closed once it has reached its size. Buckets come in the order in which they fill up, which is the order
/// they are launched in. `order` is a permutation of the indices of `items`.
std::vector<std::vector<size_t>> assign_buckets(const std::vector<BucketItem>& items,
                                                const std::vector<size_t>& order,
                                                const BucketOptions& options);

}  // namespace lockstep
