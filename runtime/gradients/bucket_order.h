#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace lockstep {

/// The order in which one optimizer's parameters are laid out in buckets, the same on every replica: at first
/// the reverse of the registration order, then the order in which replica 0's gradients arrived in its first
/// step. Use it from its replica's thread only.
class BucketOrder {
 public:
  explicit BucketOrder(size_t num_parameters);

  /// Indices of the parameters.
  const std::vector<size_t>& current() const { return current_; }
  /// Returns the order that the replicas have agreed on, including for later steps; empty if they have not
  /// yet.
  std::vector<size_t> agreed() const;
  /// Sets the agreed order, a permutation of the indices, for example from an earlier process of the
  /// training. All replicas must pass the same order.
  void set_agreed(std::vector<size_t> order);
  bool has_next() const { return !next_.empty(); }
  /// Makes the agreed order the current one.
  void take_next();
  /// Restores the initial state. Call it on all replicas after a failed run, since only some may have agreed.
  void reset();
  /// Agrees on replica 0's `arrivals` as the next order; parameters that did not arrive go last. Blocks until
  /// all replicas call it. Only the first call has an effect. `backend` must accept CPU tensors.
  void agree(c10d::Backend& backend, const std::vector<size_t>& arrivals);

 private:
  std::vector<size_t> current_;
  std::vector<size_t> next_;  // empty: the same as the current one
  bool is_final_ = false;
};

}  // namespace lockstep
