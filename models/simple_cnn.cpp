#include "lockstep/models/simple_cnn.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "lockstep/models/parts/internal/wrap_part.h"

namespace lockstep {
namespace {

constexpr int64_t kConvolutionChannels = 32;
constexpr int64_t kKernelSize = 3;
constexpr int64_t kPoolSize = 2;
constexpr int64_t kDenseUnits = 128;

void require_at_least(int64_t least, int64_t given, const char* option) {
  if (given >= least) return;
  std::ostringstream message;
  message << "[SimpleCnn] expected " << option << " to be at least " << least << ", but got " << given;
  throw std::invalid_argument(message.str());
}

/// Returns the images in the layout that the layers are fast with, if they have the right shape.
torch::Tensor images_for_cnn(const SimpleCnnOptions& options, const torch::Tensor& images) {
  if (images.dim() != 4 || images.size(1) != options.in_channels || images.size(2) != options.image_size ||
      images.size(3) != options.image_size) {
    std::ostringstream message;
    message << "[SimpleCnn] expected images of shape [N, " << options.in_channels << ", "
            << options.image_size << ", " << options.image_size << "], but got " << images.sizes();
    throw std::invalid_argument(message.str());
  }
  return images.contiguous(torch::MemoryFormat::ChannelsLast);
}

}  // namespace

SimpleCnnImpl::SimpleCnnImpl(const SimpleCnnOptions& options, PartWrapper wrap)
    : options_(options), wrap_(std::move(wrap)) {
  require_at_least(1, options.num_classes, "num_classes");
  require_at_least(1, options.in_channels, "in_channels");
  require_at_least(kKernelSize - 1 + kPoolSize, options.image_size, "image_size");
  reset();
}

void SimpleCnnImpl::reset() {
  const int64_t pooled = (options_.image_size - (kKernelSize - 1)) / kPoolSize;
  layers_.clear();
  {
    torch::nn::Conv2d convolution(
        torch::nn::Conv2dOptions(options_.in_channels, kConvolutionChannels, kKernelSize));
    const torch::NoGradGuard no_grad;
    convolution->weight.set_data(convolution->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    // Maximum and ReLU commute, so ReLU runs after the pooling on a quarter of the values. That order with
    // channels_last took 0.55 to 0.75 of the time of ReLU, pooling and NCHW on a CPU, forward and backward
    // together.
    add_part("convolution", convolution.ptr(), [convolution](const torch::Tensor& x) mutable {
      return torch::max_pool2d(convolution->forward(x), kPoolSize).relu_().flatten(1);
    });
  }
  {
    torch::nn::Linear dense(kConvolutionChannels * pooled * pooled, kDenseUnits);
    add_part("dense", dense.ptr(),
             [dense](const torch::Tensor& x) mutable { return dense->forward(x).relu_(); });
  }
  torch::nn::Linear classifier(kDenseUnits, options_.num_classes);
  add_part("classifier", classifier.ptr(),
           [classifier](const torch::Tensor& x) mutable { return classifier->forward(x); });
}

void SimpleCnnImpl::add_part(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
                             PartFunction function) {
  auto placed = wrap_part(wrap_, {name, module}, std::move(function));
  register_module(name, placed.module);
  layers_.push_back(std::move(placed.function));
}

torch::Tensor SimpleCnnImpl::forward(const torch::Tensor& images) {
  auto x = images_for_cnn(options_, images);
  for (const auto& layer : layers_) x = layer(x);
  return x;
}

std::vector<PipelineBlock> SimpleCnnImpl::blocks() const {
  std::vector<PipelineBlock> blocks;
  for (const auto& child : named_children())
    blocks.push_back({.name = child.key(), .modules = {child.value()}, .forward = layers_[blocks.size()]});
  blocks.front().forward = [options = options_, first = layers_.front()](const torch::Tensor& images) {
    return first(images_for_cnn(options, images));
  };
  return blocks;
}

std::vector<double> simple_cnn_costs(const SimpleCnnOptions& options) {
  const int64_t size = options.image_size - (kKernelSize - 1);
  const int64_t pooled = size / kPoolSize;
  std::vector<double> costs;
  for (const int64_t multiplications :
       {kKernelSize * kKernelSize * options.in_channels * kConvolutionChannels * size * size,
        kConvolutionChannels * pooled * pooled * kDenseUnits, kDenseUnits * options.num_classes})
    costs.push_back(static_cast<double>(multiplications));
  return costs;
}

SimpleCnn::SimpleCnn(const SimpleCnnOptions& options, PartWrapper wrap)
    : ModuleHolder(std::make_shared<SimpleCnnImpl>(options, std::move(wrap))) {}

}  // namespace lockstep
