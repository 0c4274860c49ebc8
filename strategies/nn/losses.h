#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {

struct AverageLossOptions {
  /// Weight of each example, of a shape that broadcasts to the shape of the losses.
  torch::Tensor sample_weight;
  /// Overrides the divisor. With a constant size, a smaller last batch counts for less, as in
  /// tf.nn.compute_average_loss.
  std::optional<int64_t> global_batch_size;
};

/// Returns sum(weight * loss) / N over this replica's shard, where N is the number of examples in the step's
/// global batch. The replicas' results and gradients sum to those of the mean over the whole batch, however
/// it was cut. An empty shard gives 0, with a graph for backward.
///
/// N comes from the distributed batch among run()'s arguments. If there is none, or several of different
/// sizes, the replicas sum the sizes of axis 0 of their losses, which blocks until all have called this. You
/// may sum up micro-batches of one batch under accumulate(): N stays that of the whole batch.
///
/// `losses` has the examples along axis 0. Other axes are summed, and not divided by (as in tf). Throws
/// InvalidArgument for a scalar, for a size below 1 and for weights of a wrong shape.
///
/// Along context axes of the mesh (see AxisRole), each rank passes the losses of its own tokens of the same
/// examples. The result's gradient is that of these alone, and its value is the sum over the ranks, so that
/// all ranks of a replica return its whole loss; that blocks until all have called this. If axis 0 has
/// tokens, pass the number of all tokens of all replicas as `global_batch_size`.
torch::Tensor compute_average_loss(ReplicaContext& replica, const torch::Tensor& losses,
                                   const AverageLossOptions& options = {});

/// Returns the sum of the values that this replica's ranks along context axes of the mesh (see AxisRole) have
/// of their own tokens, such as losses of the same examples. Its gradient is that of `part` alone. Blocks
/// until all of them have called it. Without such axes, returns `part`.
torch::Tensor sum_over_contexts(ReplicaContext& replica, const torch::Tensor& part);

/// Returns the sum of `loss` divided by the number of replicas in sync. Use it for terms that every replica
/// computes in full, such as weight decay. If ranks of a replica have different tokens, all of them compute
/// the term, and each has an equal part of the gradient.
torch::Tensor scale_regularization_loss(const ReplicaContext& replica, const torch::Tensor& loss);

}  // namespace lockstep
