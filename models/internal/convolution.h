#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>

namespace lockstep {

/// Options of a Convolution: a square kernel without bias, padded by half its size.
struct ConvolutionOptions {
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel_size = 1;  ///< odd
  int64_t stride = 1;
  int64_t groups = 1;
};

/// A 2-D convolution without bias for channels_last batches. Has the parameter `weight` of torch::nn::Conv2d
/// and computes the same results within rounding. On a CPU it avoids two slow paths of oneDNN that
/// MobileNetV2 would use; see forward(). Weights are stored channels_last and initialised as in torchvision
/// (Kaiming normal over the fan-out).
class ConvolutionImpl : public torch::nn::Cloneable<ConvolutionImpl> {
 public:
  explicit ConvolutionImpl(const ConvolutionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// Maps [N, in_channels, H, W] to [N, out_channels, ceil(H / stride), ceil(W / stride)]; N may be 0.
  torch::Tensor forward(const torch::Tensor& input);

  ConvolutionOptions options;
  torch::Tensor weight;  ///< [out_channels, in_channels / groups, kernel_size, kernel_size]
};
TORCH_MODULE(Convolution);

}  // namespace lockstep
