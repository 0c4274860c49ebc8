#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/strategies/input/replica_weights.h"

namespace lockstep {

/// The division of global batches among all replicas, which may change while batches are made. Thread-safe.
///
/// Example:
///
///     BatchShares shares(2, {1, 3});
///     shares.cut(8);   // {0, 2, 8}
class BatchShares {
 public:
  /// Divides among `num_replicas` equally, or by one weight for each.
  BatchShares(int num_replicas, std::vector<double> weights);

  /// Returns the bounds of the replicas' pieces of a batch of `n` examples; see cut_equally().
  std::vector<int64_t> cut(int64_t n) const;
  /// The same for a batch that `count` replicas beginning with `first` divide among themselves.
  std::vector<int64_t> cut_among(int64_t n, int first, int count) const;
  /// Returns the weights; empty if the pieces are equal.
  std::vector<double> weights() const;
  /// Divides later batches by one weight for each replica.
  void set_weights(std::vector<double> weights);

 private:
  const int num_replicas_;
  mutable Mutex mutex_;
  std::vector<double> weights_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
