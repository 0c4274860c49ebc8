#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {

/// A layer's place among the ranks that have its other parts, and its collectives with them.
///
/// These ranks compute one loss together. Values that all of them have, such as the input of a layer that is
/// cut, have equal gradients on all of them; parts have the gradients of parts. That makes each collective's
/// gradient different from that of ReplicaAxis, whose ranks' losses add up. With one rank, values pass
/// through.
///
/// Example:
///
///     // y = B(A x), of which each rank has some rows of A and the matching columns of B
///     auto hidden = torch::linear(axis.copy_to_parts(x), rows_of_a).relu();
///     auto y = axis.sum_of_parts(torch::linear(hidden, columns_of_b));
///
/// Between such layers, each rank may have a shard of a dimension of x and y, such as the sequence, instead
/// of all of it (sequence parallelism; Korthikanti et al., "Reducing Activation Recomputation in Large
/// Transformer Models", 2022):
///
///     auto hidden = torch::linear(axis.gather_shards(x, 1), rows_of_a).relu();
///     auto y = axis.sum_to_shards(torch::linear(hidden, columns_of_b), 1);
class ParallelAxis {
 public:
  /// `layer` is the layer's type, which begins its errors. Throws InvalidArgument for an axis of several
  /// ranks that has another role.
  ParallelAxis(std::string layer, const ReplicaAxis& axis, AxisRole role = AxisRole::kModel);

  const std::string& layer() const { return layer_; }
  const std::string& name() const { return position_.name; }
  /// Place of this rank along the axis.
  int index() const { return position_.index; }
  /// Number of ranks along the axis.
  int size() const { return position_.size; }

  /// Returns an equal share of `count`, which the ranks divide. Throws InvalidArgument with numbers that
  /// would do if they do not; `what` names the number, such as "out_features".
  int64_t share_of(int64_t count, const std::string& what) const;

  /// Takes the collectives of the layer's rank. Throws InvalidArgument if it has another place on the axis.
  void bind(std::shared_ptr<const ReplicaCollectives> replica);
  /// Draws random numbers of this rank's own; see RankRandom. Throws as the collectives do.
  [[nodiscard]] RankRandom rank_random() const;
  /// Returns the backends of the ranks along the axis, for other collectives than these. Throws as they do.
  ReplicaBackends backends() const;
  /// Returns the clock that adds up waits. Throws as the collectives do outside of a run.
  WaitClock& waits() const;
  /// Throws InvalidArgument while a CudaGraph is captured; `operation` is what it cannot hold.
  void refuse_capture(const std::string& operation) const;

  // Collectives of the ranks along the axis, which block until all have called them. They throw as
  // ReplicaAxis's do, and InvalidArgument before bind() and outside a run. They can be differentiated any
  // number of times.

  /// Returns `value`, which is the same on all ranks, for use by their parts. Its gradient is the sum of
  /// those on all ranks: a collective in backward, but not in forward.
  torch::Tensor copy_to_parts(const torch::Tensor& value) const;
  /// Returns the sum of the ranks' values. Backward passes the gradient on.
  torch::Tensor sum_of_parts(const torch::Tensor& part) const;
  /// Concatenates the ranks' values, which have one shape, along `dim` (negative: from the end). Backward
  /// takes this rank's part of the gradient.
  torch::Tensor gather_parts(const torch::Tensor& part, int64_t dim) const;
  /// Returns this rank's part of `value`, which is the same on all ranks and has a multiple of their number
  /// along `dim`. Backward gathers the gradients of the parts: a collective there, but not in forward.
  torch::Tensor own_part(const torch::Tensor& value, int64_t dim) const;
  /// Concatenates the ranks' shards, which have one shape, along `dim`, for use by the ranks' parts. Backward
  /// sums the ranks' gradients and takes those of this rank's shard: a collective there, too.
  torch::Tensor gather_shards(const torch::Tensor& shard, int64_t dim) const;
  /// Returns this rank's shard along `dim` of the sum of the ranks' values, whose size there is a multiple of
  /// their number. Backward gathers the gradients of the shards: a collective there, too.
  torch::Tensor sum_to_shards(const torch::Tensor& part, int64_t dim) const;
  /// Replaces `value` by the elementwise maximum over the ranks, without gradients.
  void maximum_(const torch::Tensor& value) const;
  /// Replaces `value` by the sum over the ranks, without gradients.
  void sum_(const torch::Tensor& value) const;

 private:
  const ReplicaCollectives& bound() const;

  std::string layer_;
  AxisPosition position_;
  std::shared_ptr<const ReplicaCollectives> replica_;
};

}  // namespace lockstep
