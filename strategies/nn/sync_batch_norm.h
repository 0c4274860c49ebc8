#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <iosfwd>
#include <memory>
#include <utility>

#include "lockstep/runtime/replicas/replica_collectives.h"

namespace lockstep {

/// Batch normalisation with the statistics of the global batch: N replicas compute what torch::nn::BatchNorm
/// does on one device with all of their examples, in forward, backward and running statistics. It has that
/// module's options, parameters and buffers, under the same names.
///
/// It knows its replica by being registered anywhere in a module that Strategy::scope() or mirror() gave out.
/// Training there, with several replicas, forward is one collective, and backward another where the input has
/// a gradient: every replica must call both, with shards of any size, 0 included. In evaluation, with one
/// replica, and where no strategy has given it out it is plain batch normalisation that takes empty batches
/// too. They count as no batch: running statistics stay as they were.
///
/// Statistics are float32 for float16 and bfloat16 inputs, and the output has the input's dtype.
class SyncBatchNormImpl : public torch::nn::BatchNormImplBase<2, SyncBatchNormImpl>, public ReplicaBound {
 public:
  using torch::nn::BatchNormImplBase<2, SyncBatchNormImpl>::BatchNormImplBase;

  /// [N, num_features, ...] of 2 to 5 dimensions to the same shape and memory format. Blocks until all
  /// replicas have called it, where it is a collective; backward likewise.
  ///
  /// Throws InvalidArgument for another shape; while training, on every replica, for a global batch with one
  /// value a channel, which has no variance; for training outside a run of the strategy that gave the module
  /// out, or in another replica's thread; and in backward with create_graph. Throws what collectives throw.
  torch::Tensor forward(const torch::Tensor& input);

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override { replica_ = std::move(replica); }
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  torch::Tensor forward_on_replicas(const torch::Tensor& input);
  double count_batch();

  std::shared_ptr<const ReplicaCollectives> replica_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace lockstep
