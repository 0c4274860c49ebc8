#pragma once

#include <torch/nn/module.h>

#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/value_kind.h"
#include "lockstep/strategies/parallel/parallel_plan.h"

namespace lockstep {

/// Cuts layers of an ordinary module along an axis of the mesh, such as "tensor", as the plan says. It
/// replaces the values of torch::nn::Linear and torch::nn::Embedding layers by this rank's parts of them, and
/// the layers' forward then communicates with the other ranks. The module's own code does not change, and its
/// ranks together compute what the whole module computes. Call it in the factory of Strategy::scope(), with
/// the same module and plan on all ranks.
///
/// Cut parameters have the names of the whole ones and begin with their values; they are marked as parts (see
/// ShardedParameter). A layer that computes with the parts of several features at once, such as heads of
/// attention, must take their number from the tensors that it gets. Dropout of parts draws the same numbers
/// on all ranks.
///
/// A weight may belong to several layers (tied weights); as the weight of a linear layer that the plan does
/// not name, a cut table of an embedding gives the whole output. Outside of runs, the thread that called
/// parallelize() refuses to compute with parts.
///
/// Throws InvalidArgument for an axis that cuts the batch; for a line that names no module, with a name that
/// is near; for a module that is neither of these layers, is cut already, or belongs to a
/// torch::nn::MultiheadAttention; for sizes that the ranks do not divide, with sizes that they would; and for
/// embeddings with max_norm, scale_grad_by_freq or sparse gradients. The module is unchanged then. If the
/// plan misses a layer, forward throws InvalidArgument with the layer's name once a layer gets another number
/// of features than its weight has; check_parallelized() finds what no size shows.
///
/// Example:
///
///     auto net = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       Net own;
///       parallelize(own, replica.axis("tensor"),
///                   {{"blocks.*.up", ColwiseParallel{}}, {"blocks.*.down", RowwiseParallel{}}});
///       return own;
///     });
void parallelize(torch::nn::Module& module, const ReplicaAxis& axis, const ParallelPlan& plan);

template <ModuleLike T>
void parallelize(const T& module, const ReplicaAxis& axis, const ParallelPlan& plan) {
  parallelize(*module_pointer(module), axis, plan);
}

}  // namespace lockstep
