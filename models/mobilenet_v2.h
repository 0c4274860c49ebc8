#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "lockstep/models/norm_layer.h"
#include "lockstep/models/parts/model_parts.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep {

/// The layers after MobileNetV2's convolutions.
enum class MobileNetV2Head {
  /// As in torchvision: global average, dropout, one dense layer.
  kGlobalAverage,
  /// 2x2 average pooling, flatten, dense layer of 512, dense layer of num_classes, with nothing between them
  /// and no dropout. The input size of the first dense layer depends on MobileNetV2Options::image_size.
  kFlattenedDense,
};

struct MobileNetV2Options {
  int64_t num_classes = 1000;
  /// Multiplies the channels of every layer, rounded to multiples of 8. The last layer never gets fewer than
  /// 1280.
  double width_multiplier = 1.0;
  /// Dropout of kGlobalAverage, in [0, 1).
  double dropout = 0.2;
  int64_t in_channels = 3;
  MobileNetV2Head head = MobileNetV2Head::kGlobalAverage;
  /// Height and width in pixels for kFlattenedDense, at least 33. kGlobalAverage takes any size.
  int64_t image_size = 64;
  /// Makes each layer's normalization; BatchNorm by default. For statistics over all replicas, use
  /// lockstep::SyncBatchNorm:
  ///
  ///     [](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels)); }
  NormLayer norm_layer = {};
};

/// MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) with the
/// layers, initialization and state_dict keys of torchvision's mobilenet_v2, and the same results up to
/// rounding. The dense layers of kFlattenedDense are initialized Glorot-uniform. Convolution weights are
/// channels_last, and forward() converts its input to that format.
///
/// Trains on a shard of 0 examples, which leaves running statistics unchanged, and on 1 example if the last
/// feature map has more than one pixel (image sizes above 32).
///
/// Example:
///
///     MobileNetV2 model(MobileNetV2Options{.num_classes = 10});
///     auto logits = model(torch::rand({8, 3, 64, 64}));
class MobileNetV2Impl : public torch::nn::Cloneable<MobileNetV2Impl> {
 public:
  /// Throws std::invalid_argument naming an option that is out of range. `wrap` gets the first convolution
  /// (`features.0`), each block (`features.1` ...), the last convolution, and the layers after it
  /// (`classifier`). Wrapped parts compute the same values, with the same initial ones. Clones call it
  /// again.
  explicit MobileNetV2Impl(const MobileNetV2Options& options = {}, PartWrapper wrap = {});

  void reset() override;

  /// Maps images [N, in_channels, H, W] to logits [N, num_classes]. Throws std::invalid_argument for other
  /// shapes.
  torch::Tensor forward(const torch::Tensor& images);

  /// Returns the parts that the constructor's `wrap` gets, for a Pipeline. Their functions hold the parts and
  /// not the model.
  std::vector<PipelineBlock> blocks() const;

  const MobileNetV2Options& options() const { return options_; }

 private:
  template <typename Layer>
  void add_features(const Layer& layer);
  void add_classifier(int64_t in_channels);

  MobileNetV2Options options_;
  PartWrapper wrap_;
  torch::nn::Sequential features_{nullptr};          // without wrap_
  torch::nn::ModuleList wrapped_features_{nullptr};  // with wrap_
  std::vector<PartFunction> layers_;
};

/// Returns the multiplications of each of a MobileNetV2's blocks() for an image of `image_size` pixels in
/// height and width: costs for PipelineOptions. The last blocks have most parameters, and the first ones most
/// multiplications.
std::vector<double> mobilenet_v2_costs(const MobileNetV2Options& options, int64_t image_size);

class MobileNetV2 : public torch::nn::ModuleHolder<MobileNetV2Impl> {
 public:
  using Impl = MobileNetV2Impl;
  using torch::nn::ModuleHolder<MobileNetV2Impl>::ModuleHolder;

  MobileNetV2() = default;
  explicit MobileNetV2(const MobileNetV2Options& options, PartWrapper wrap = {});
};

}  // namespace lockstep
