#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace lockstep {

/// The order that one optimizer's parameters are laid out in, the same on every replica: reverse registration
/// order at first, then the order in which the gradients of replica 0's first step arrived. Used by its
/// replica's thread only.
class BucketOrder {
 public:
  explicit BucketOrder(size_t num_parameters);

  /// Indices of the parameters.
  const std::vector<size_t>& current() const { return current_; }
  /// What the replicas have agreed on, for next steps too; empty: nothing yet.
  std::vector<size_t> agreed() const;
  /// Takes `order`, a permutation of the indices, for what the replicas have agreed on, as in an earlier
  /// process of the training; all of them take the same one.
  void set_agreed(std::vector<size_t> order);
  bool has_next() const { return !next_.empty(); }
  /// Makes the order that the replicas agreed on the current one.
  void take_next();
  /// Back to the start. After a failed run some replicas may have agreed and others not: all of them reset.
  void reset();
  /// Agrees on replica 0's `arrivals` for the next order; parameters that did not arrive go last. Blocks
  /// until all replicas call it. Only the first call does anything. `backend` takes CPU tensors.
  void agree(c10d::Backend& backend, const std::vector<size_t>& arrivals);

 private:
  std::vector<size_t> current_;
  std::vector<size_t> next_;  // empty: as the current one
  bool is_final_ = false;
};

}  // namespace lockstep
