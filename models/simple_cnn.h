#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/parts/model_parts.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep {

struct SimpleCnnOptions {
  int64_t num_classes = 10;
  int64_t in_channels = 1;
  int64_t image_size = 28;  ///< height and width in pixels, at least 4
};

/// The small convolutional network of introductory MNIST examples: convolution with 32 3x3 kernels, ReLU, 2x2
/// max pooling, flatten, dense layer of 128, ReLU, dense layer of num_classes. Uses PyTorch's default
/// initialization. It has no state besides its parameters (693,962 with the default options) and trains on
/// shards of any size, including 0.
///
/// Example:
///
///     SimpleCnn model(SimpleCnnOptions{.num_classes = 10});
///     auto logits = model(torch::rand({32, 1, 28, 28}));
class SimpleCnnImpl : public torch::nn::Cloneable<SimpleCnnImpl> {
 public:
  /// Throws std::invalid_argument naming an option that is out of range. `wrap` gets the `convolution`, the
  /// `dense` layer after it, and the `classifier`. Wrapped parts compute the same values, with the same
  /// initial ones. Clones call it again.
  explicit SimpleCnnImpl(const SimpleCnnOptions& options = {}, PartWrapper wrap = {});

  void reset() override;

  /// Maps images [N, in_channels, image_size, image_size] to logits [N, num_classes]. Throws
  /// std::invalid_argument for other shapes.
  torch::Tensor forward(const torch::Tensor& images);

  /// Returns the three layers, for a Pipeline. Their functions hold the layers and not the model.
  std::vector<PipelineBlock> blocks() const;

  const SimpleCnnOptions& options() const { return options_; }

 private:
  void add_part(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
                PartFunction function);

  SimpleCnnOptions options_;
  PartWrapper wrap_;
  std::vector<PartFunction> layers_;
};

/// Returns the multiplications of each of a SimpleCnn's blocks() for an image: costs for PipelineOptions.
std::vector<double> simple_cnn_costs(const SimpleCnnOptions& options);

class SimpleCnn : public torch::nn::ModuleHolder<SimpleCnnImpl> {
 public:
  using Impl = SimpleCnnImpl;
  using torch::nn::ModuleHolder<SimpleCnnImpl>::ModuleHolder;

  SimpleCnn() = default;
  explicit SimpleCnn(const SimpleCnnOptions& options, PartWrapper wrap = {});
};

}  // namespace lockstep
