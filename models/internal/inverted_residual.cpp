#include "lockstep/models/internal/inverted_residual.h"

#include "lockstep/models/internal/relu6.h"

namespace lockstep {

void ConvolutionNormRelu6Impl::reset() {
  convolution_ = register_module("0", Convolution(options_));
  norm_ = make_norm_layer(norm_layer_, options_.out_channels);
  register_module("1", norm_.ptr());
}

torch::Tensor ConvolutionNormRelu6Impl::forward(const torch::Tensor& input) {
  return relu6_in_place(norm_.forward(convolution_->forward(input)));
}

void InvertedResidualImpl::reset() {
  const int64_t hidden = options_.in_channels * options_.expansion;
  convolutions_ = register_module("conv", torch::nn::Sequential());
  if (options_.expansion != 1) {
    convolutions_->push_back(
        ConvolutionNormRelu6(ConvolutionOptions{.in_channels = options_.in_channels, .out_channels = hidden},
                             options_.norm_layer));
  }
  convolutions_->push_back(ConvolutionNormRelu6(ConvolutionOptions{.in_channels = hidden,
                                                                   .out_channels = hidden,
                                                                   .kernel_size = 3,
                                                                   .stride = options_.stride,
                                                                   .groups = hidden},
                                                options_.norm_layer));
  convolutions_->push_back(
      Convolution(ConvolutionOptions{.in_channels = hidden, .out_channels = options_.out_channels}));
  convolutions_->push_back(make_norm_layer(options_.norm_layer, options_.out_channels));
}

torch::Tensor InvertedResidualImpl::forward(const torch::Tensor& input) {
  auto output = convolutions_->forward(input);
  // In place, since backward of the normalisation that made `output` does not need it.
  if (options_.stride == 1 && options_.in_channels == options_.out_channels) output.add_(input);
  return output;
}

}  // namespace lockstep
