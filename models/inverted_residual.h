#pragma once

// Internal: only sources of its layer need it.

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/convolution.h"

namespace lockstep {

/// Convolution, batch normalisation and ReLU6. Its names are torchvision's, which come from the positions of
/// layers in a Sequential: "0.weight", "1.running_mean", ...
class ConvolutionNormRelu6Impl : public torch::nn::Cloneable<ConvolutionNormRelu6Impl> {
 public:
  explicit ConvolutionNormRelu6Impl(const ConvolutionOptions& options) : options_(options) { reset(); }

  void reset() override;
  torch::Tensor forward(const torch::Tensor& input);

 private:
  ConvolutionOptions options_;
  Convolution convolution_{nullptr};
  BatchNorm norm_{nullptr};
};
TORCH_MODULE(ConvolutionNormRelu6);

struct InvertedResidualOptions {
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t stride = 1;
  int64_t expansion = 1;
};

/// MobileNetV2's block (Sandler et al., 2018, section 3.3): expands the channels, convolves each by itself,
/// and projects them onto few again without an activation; the input is added where shapes agree.
class InvertedResidualImpl : public torch::nn::Cloneable<InvertedResidualImpl> {
 public:
  explicit InvertedResidualImpl(const InvertedResidualOptions& options) : options_(options) { reset(); }

  void reset() override;
  torch::Tensor forward(const torch::Tensor& input);

 private:
  InvertedResidualOptions options_;
  torch::nn::Sequential convolutions_;
};
TORCH_MODULE(InvertedResidual);

}  // namespace lockstep
