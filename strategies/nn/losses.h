#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {

struct AverageLossOptions {
  /// A weight for each example, of a shape that broadcasts to the losses'.
  torch::Tensor sample_weight;
  /// Overrides the divisor. With a constant size, a smaller last batch counts for less, as in
  /// tf.nn.compute_average_loss.
  std::optional<int64_t> global_batch_size;
};

/// sum(weight * loss) / N over this replica's shard, where N is the number of examples in the step's global
/// batch: the replicas' results and gradients add up to those of the whole batch's mean, however it was cut.
/// An empty shard gives 0 with a graph to go backward through.
///
/// N comes from the distributed batch among run's arguments. Where there is none, or several of different
/// sizes, the replicas add up the sizes of axis 0 of their losses, which blocks until all have called it.
/// Micro-batches of one batch may be summed up under accumulate(): N stays the whole batch's. `losses` has
/// the examples along axis 0; losses of more dimensions are summed over the others (as tf does not divide by
/// them either). Throws InvalidArgument for a scalar, a size below 1 or weights of a wrong shape.
torch::Tensor compute_average_loss(ReplicaContext& replica, const torch::Tensor& losses,
                                   const AverageLossOptions& options = {});

/// loss / number of replicas in sync: for terms that every replica computes in full, such as weight decay.
torch::Tensor scale_regularization_loss(const ReplicaContext& replica, const torch::Tensor& loss);

}  // namespace lockstep
