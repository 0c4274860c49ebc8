#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <utility>

#include "lockstep/models/internal/convolution.h"
#include "lockstep/models/norm_layer.h"

namespace lockstep {

/// Convolution, normalisation and ReLU6. Parameter names match torchvision's, which number the layers of a
/// Sequential: "0.weight", "1.running_mean", ...
class ConvolutionNormRelu6Impl : public torch::nn::Cloneable<ConvolutionNormRelu6Impl> {
 public:
  explicit ConvolutionNormRelu6Impl(const ConvolutionOptions& options, NormLayer norm_layer = {})
      : options_(options), norm_layer_(std::move(norm_layer)) {
    reset();
  }

  void reset() override;
  torch::Tensor forward(const torch::Tensor& input);

 private:
  ConvolutionOptions options_;
  NormLayer norm_layer_;
  Convolution convolution_{nullptr};
  torch::nn::AnyModule norm_;
};
TORCH_MODULE(ConvolutionNormRelu6);

struct InvertedResidualOptions {
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t stride = 1;
  int64_t expansion = 1;
  NormLayer norm_layer = {};
};

/// MobileNetV2's block (Sandler et al., 2018, section 3.3): expands the channels, applies a depthwise
/// convolution, and projects to few channels without an activation. Adds the input if the shapes match.
class InvertedResidualImpl : public torch::nn::Cloneable<InvertedResidualImpl> {
 public:
  explicit InvertedResidualImpl(InvertedResidualOptions options) : options_(std::move(options)) { reset(); }

  void reset() override;
  torch::Tensor forward(const torch::Tensor& input);

 private:
  InvertedResidualOptions options_;
  torch::nn::Sequential convolutions_;
};
TORCH_MODULE(InvertedResidual);

}  // namespace lockstep
