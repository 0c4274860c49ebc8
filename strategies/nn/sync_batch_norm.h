#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <iosfwd>
#include <memory>
#include <utility>

#include "lockstep/runtime/replicas/replica_collectives.h"

namespace lockstep {

/// Batch normalization with the statistics of the global batch. N replicas compute the same as
/// torch::nn::BatchNorm on one device with all of their examples, in forward, backward and running
/// statistics. Options, parameters, buffers and their names are that module's.
///
/// It learns its replica when Strategy::scope() or mirror() returns a module that it is registered in at any
/// depth. When it trains there with several replicas, forward is a collective, and so is backward if the
/// input has a gradient: every replica must call both, with shards of any size, including 0. In evaluation,
/// with one replica, and outside a strategy, it is plain batch normalization that also accepts empty batches,
/// which leave the running statistics unchanged.
///
/// Statistics are float32 for float16 and bfloat16 inputs. The output has the input's dtype.
///
/// Example:
///
///     auto model = strategy.scope([](ReplicaContext&) {
///       return torch::nn::Sequential(torch::nn::Conv2d(3, 64, 3), SyncBatchNorm(64), torch::nn::ReLU());
///     });
class SyncBatchNormImpl : public torch::nn::BatchNormImplBase<2, SyncBatchNormImpl>, public ReplicaBound {
 public:
  using torch::nn::BatchNormImplBase<2, SyncBatchNormImpl>::BatchNormImplBase;

  /// Maps [N, num_features, ...] with 2 to 5 dimensions to the same shape and memory format. If it is a
  /// collective, blocks until all replicas have called it; the same holds for backward.
  ///
  /// Throws InvalidArgument for another shape; while training, on every replica, for a global batch with one
  /// value per channel, which has no variance; for training outside a run of its strategy or in another
  /// replica's thread; and in backward with create_graph. Throws as collectives do.
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
