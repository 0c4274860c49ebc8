#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

#include "lockstep/models/norm_layer.h"

namespace lockstep {

/// What follows MobileNetV2's convolutions.
enum class MobileNetV2Head {
  /// torchvision's: global average, dropout, one dense layer.
  kGlobalAverage,
  /// Average pooling 2x2, flatten, dense layer of 512, dense layer of num_classes, nothing between them; no
  /// dropout.
  /// The input of the first dense layer depends on MobileNetV2Options::image_size.
  kFlattenedDense,
};

struct MobileNetV2Options {
  int64_t num_classes = 1000;
  /// Multiplies the channels of every layer, rounded to multiples of 8 (the last layer never gets fewer than
  /// 1280).
  double width_multiplier = 1.0;
  /// Of kGlobalAverage, in [0, 1).
  double dropout = 0.2;
  int64_t in_channels = 3;
  MobileNetV2Head head = MobileNetV2Head::kGlobalAverage;
  /// Height and width in pixels that kFlattenedDense is made for, at least 33. kGlobalAverage takes any size.
  int64_t image_size = 64;
  /// Makes each layer's normalisation; BatchNorm by default. All replicas' statistics together, with
  /// lockstep::SyncBatchNorm: `[](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels));
  /// }`.
  NormLayer norm_layer = {};
};

/// MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) with the
/// layers, initialisation and state_dict keys of torchvision's mobilenet_v2, and its results within rounding;
/// the dense layers of kFlattenedDense are initialised Glorot-uniform. Convolution weights are channels_last,
/// and forward brings its input there.
///
/// Trains on a shard of 0 examples, which leaves running statistics untouched, and on 1 example wherever the
/// last feature map has more than one pixel (image sizes above 32).
class MobileNetV2Impl : public torch::nn::Cloneable<MobileNetV2Impl> {
 public:
  /// Throws std::invalid_argument naming the option that is out of its range.
  explicit MobileNetV2Impl(const MobileNetV2Options& options = {});

  void reset() override;

  /// [N, in_channels, H, W] to logits [N, num_classes]. Throws std::invalid_argument for another shape.
  torch::Tensor forward(const torch::Tensor& images);

  const MobileNetV2Options& options() const { return options_; }

 private:
  MobileNetV2Options options_;
  torch::nn::Sequential features_;
  torch::nn::Sequential classifier_;
};

class MobileNetV2 : public torch::nn::ModuleHolder<MobileNetV2Impl> {
 public:
  using Impl = MobileNetV2Impl;
  using torch::nn::ModuleHolder<MobileNetV2Impl>::ModuleHolder;

  MobileNetV2() = default;
  explicit MobileNetV2(const MobileNetV2Options& options);
};

}  // namespace lockstep
