#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep {

/// torch::nn::BatchNorm2d that also trains on a shard of 0 examples: its output is empty, its gradients are
/// zeros, and an empty shard counts as no batch, so that running_mean, running_var and num_batches_tracked
/// stay as they were. One value a channel (one example of 1x1 pixels) still throws while training: it has no
/// variance.
class BatchNormImpl : public torch::nn::BatchNormImplBase<2, BatchNormImpl> {
 public:
  using torch::nn::BatchNormImplBase<2, BatchNormImpl>::BatchNormImplBase;

  /// [N, channels, H, W] to the same shape.
  torch::Tensor forward(const torch::Tensor& input);

 protected:
  void _check_input_dim(const torch::Tensor& input) override;
};
TORCH_MODULE(BatchNorm);

}  // namespace lockstep
