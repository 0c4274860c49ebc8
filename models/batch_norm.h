#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep {

/// Like torch::nn::BatchNorm2d, but also trains on a shard of 0 examples. Its output is then empty, its
/// gradients are zeros, and running_mean, running_var and num_batches_tracked do not change. A single value
/// per channel (one example of 1x1 pixels) still throws in training, since it has no variance.
///
/// Example:
///
///     BatchNorm norm(torch::nn::BatchNormOptions(16));
///     auto output = norm(torch::rand({0, 16, 28, 28}));
class BatchNormImpl : public torch::nn::BatchNormImplBase<2, BatchNormImpl> {
 public:
  using torch::nn::BatchNormImplBase<2, BatchNormImpl>::BatchNormImplBase;

  /// Maps [N, channels, H, W] to the same shape.
  torch::Tensor forward(const torch::Tensor& input);

 protected:
  void _check_input_dim(const torch::Tensor& input) override;
};
TORCH_MODULE(BatchNorm);

}  // namespace lockstep
