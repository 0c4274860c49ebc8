#include "lockstep/models/mobilenet_v2.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/models/internal/inverted_residual.h"
#include "lockstep/models/parts/internal/wrap_part.h"

namespace lockstep {
namespace {

/// One row of the paper's table 2: `repeats` blocks, the first of them with `stride`.
struct Stage {
  int64_t expansion;
  int64_t channels;
  int64_t repeats;
  int64_t stride;
};

constexpr std::array<Stage, 7> kStages = {{{1, 16, 1, 1},
                                           {6, 24, 2, 2},
                                           {6, 32, 3, 2},
                                           {6, 64, 4, 2},
                                           {6, 96, 3, 1},
                                           {6, 160, 3, 2},
                                           {6, 320, 1, 1}}};
constexpr int64_t kFirstChannels = 32;
constexpr int64_t kLastChannels = 1280;
constexpr int64_t kHeadUnits = 512;
constexpr int64_t kKernelElements = 9;
constexpr int kHalvings = 5;

/// The multiple of 8 nearest to `channels`, but never more than 10 % below it.
int64_t round_channels(double channels) {
  constexpr int64_t kMultiple = 8;
  const int64_t nearest = static_cast<int64_t>(channels + kMultiple / 2.0) / kMultiple * kMultiple;
  const int64_t rounded = std::max(kMultiple, nearest);
  return rounded < 0.9 * channels ? rounded + kMultiple : rounded;
}

/// Height and width of the last feature map.
int64_t feature_map_size(int64_t image_size) {
  for (int halving = 0; halving < kHalvings; ++halving) image_size = (image_size + 1) / 2;
  return image_size;
}

template <typename Value>
void require(bool holds, const char* option, const char* expected, Value given) {
  if (holds) return;
  std::ostringstream message;
  message << "[MobileNetV2] expected " << option << " to be " << expected << ", but got " << given;
  throw std::invalid_argument(message.str());
}

/// Returns the images in the layout that the layers are fast with, if they have the right shape.
torch::Tensor images_for_mobilenet(int64_t channels, const torch::Tensor& images) {
  if (images.dim() != 4 || images.size(1) != channels) {
    std::ostringstream message;
    message << "[MobileNetV2] expected images of shape [N, " << channels << ", H, W], but got "
            << images.sizes();
    throw std::invalid_argument(message.str());
  }
  // channels_last: 2 times as fast as NCHW on a CPU, measured over forward and backward.
  return images.contiguous(torch::MemoryFormat::ChannelsLast);
}

}  // namespace

MobileNetV2Impl::MobileNetV2Impl(const MobileNetV2Options& options, PartWrapper wrap)
    : options_(options), wrap_(std::move(wrap)) {
  require(options.num_classes > 0, "num_classes", "positive", options.num_classes);
  require(options.width_multiplier > 0, "width_multiplier", "positive", options.width_multiplier);
  require(options.dropout >= 0 && options.dropout < 1, "dropout", "in [0, 1)", options.dropout);
  require(options.in_channels > 0, "in_channels", "positive", options.in_channels);
  require(options.head != MobileNetV2Head::kFlattenedDense || feature_map_size(options.image_size) >= 2,
          "image_size", "at least 33 for the head kFlattenedDense", options.image_size);
  reset();
}

void MobileNetV2Impl::reset() {
  const double width = options_.width_multiplier;
  const int64_t last_channels = round_channels(kLastChannels * std::max(1.0, width));
  int64_t channels = round_channels(kFirstChannels * width);

  layers_.clear();
  if (wrap_) {
    wrapped_features_ = register_module("features", torch::nn::ModuleList());
  } else {
    features_ = register_module("features", torch::nn::Sequential());
    layers_.emplace_back([layers = features_](const torch::Tensor& x) mutable { return layers->forward(x); });
  }
  add_features(ConvolutionNormRelu6(
      ConvolutionOptions{
          .in_channels = options_.in_channels, .out_channels = channels, .kernel_size = 3, .stride = 2},
      options_.norm_layer));
  for (const auto& stage : kStages) {
    const int64_t out_channels = round_channels(stage.channels * width);
    for (int64_t repeat = 0; repeat < stage.repeats; ++repeat) {
      add_features(InvertedResidual(InvertedResidualOptions{.in_channels = channels,
                                                            .out_channels = out_channels,
                                                            .stride = repeat == 0 ? stage.stride : 1,
                                                            .expansion = stage.expansion,
                                                            .norm_layer = options_.norm_layer}));
      channels = out_channels;
    }
  }
  add_features(ConvolutionNormRelu6(
      ConvolutionOptions{.in_channels = channels, .out_channels = last_channels}, options_.norm_layer));
  add_classifier(last_channels);
}

template <typename Layer>
void MobileNetV2Impl::add_features(const Layer& layer) {
  if (!wrap_) {
    features_->push_back(layer);
    return;
  }
  const ModelPart part{"features." + std::to_string(wrapped_features_->size()), layer.ptr()};
  using Impl = typename Layer::Impl;
  auto wrapped = wrap_part(
      wrap_, part,
      [list = wrapped_features_, place = wrapped_features_->size(), made = layer.ptr()](const auto& x) {
        // Cloning a ModuleList makes other elements than reset() did.
        const auto listed = std::dynamic_pointer_cast<Impl>(list->ptr(place));
        return (listed != nullptr ? listed : made)->forward(x);
      });
  wrapped_features_->push_back(wrapped.module);
  layers_.push_back(std::move(wrapped.function));
}

void MobileNetV2Impl::add_classifier(int64_t in_channels) {
  torch::nn::Sequential dense_layers;
  const bool is_flattened = options_.head == MobileNetV2Head::kFlattenedDense;
  if (is_flattened) {
    const int64_t pooled = feature_map_size(options_.image_size) / 2;
    const std::array<torch::nn::Linear, 2> layers = {
        torch::nn::Linear(in_channels * pooled * pooled, kHeadUnits),
        torch::nn::Linear(kHeadUnits, options_.num_classes)};
    for (const auto& layer : layers) {
      torch::nn::init::xavier_uniform_(layer->weight);
      torch::nn::init::zeros_(layer->bias);
      dense_layers->push_back(layer);
    }
  } else {
    torch::nn::Linear dense(in_channels, options_.num_classes);
    torch::nn::init::normal_(dense->weight, 0, 0.01);
    torch::nn::init::zeros_(dense->bias);
    dense_layers->push_back(torch::nn::Dropout(options_.dropout));
    dense_layers->push_back(dense);
  }
  const auto classify = [dense_layers, is_flattened](const torch::Tensor& features) mutable {
    return dense_layers->forward(is_flattened ? torch::avg_pool2d(features, 2).flatten(1)
                                              : features.mean({2, 3}));
  };
  auto wrapped = wrap_part(wrap_, {"classifier", dense_layers.ptr()}, classify);
  register_module("classifier", wrapped.module);
  layers_.push_back(std::move(wrapped.function));
}

torch::Tensor MobileNetV2Impl::forward(const torch::Tensor& images) {
  auto x = images_for_mobilenet(options_.in_channels, images);
  for (const auto& layer : layers_) x = layer(x);
  return x;
}

std::vector<PipelineBlock> MobileNetV2Impl::blocks() const {
  std::vector<PipelineBlock> blocks;
  const auto add_feature = [&](const std::shared_ptr<torch::nn::Module>& module, PartFunction function) {
    const std::string name = "features." + std::to_string(blocks.size());
    blocks.push_back({.name = name, .modules = {module}, .forward = std::move(function)});
  };
  if (wrap_) {
    for (const auto& module : *wrapped_features_) add_feature(module, layers_[blocks.size()]);
  } else {
    for (const auto& layer : *features_) {
      add_feature(layer.ptr(), [called = torch::nn::AnyModule(layer)](const torch::Tensor& x) mutable {
        return called.forward<torch::Tensor>(x);
      });
    }
  }
  blocks.front().forward = [channels = options_.in_channels,
                            first = blocks.front().forward](const torch::Tensor& images) {
    return first(images_for_mobilenet(channels, images));
  };
  blocks.push_back(
      {.name = "classifier", .modules = {named_children()["classifier"]}, .forward = layers_.back()});
  return blocks;
}

std::vector<double> mobilenet_v2_costs(const MobileNetV2Options& options, int64_t image_size) {
  const double width = options.width_multiplier;
  const int64_t last_channels = round_channels(kLastChannels * std::max(1.0, width));
  int64_t channels = round_channels(kFirstChannels * width);
  int64_t size = (image_size + 1) / 2;
  std::vector<double> costs;
  const auto add = [&](int64_t multiplications) { costs.push_back(static_cast<double>(multiplications)); };
  add(kKernelElements * options.in_channels * channels * size * size);
  for (const auto& stage : kStages) {
    const int64_t out_channels = round_channels(stage.channels * width);
    for (int64_t repeat = 0; repeat < stage.repeats; ++repeat) {
      const int64_t hidden = channels * stage.expansion;
      const int64_t expansion = stage.expansion == 1 ? 0 : channels * hidden * size * size;
      if (repeat == 0) size = (size + stage.stride - 1) / stage.stride;
      add(expansion + hidden * (kKernelElements + out_channels) * size * size);
      channels = out_channels;
    }
  }
  add(channels * last_channels * size * size);
  const int64_t pooled = size / 2;
  add(options.head == MobileNetV2Head::kFlattenedDense
          ? (last_channels * pooled * pooled + options.num_classes) * kHeadUnits
          : last_channels * options.num_classes);
  return costs;
}

MobileNetV2::MobileNetV2(const MobileNetV2Options& options, PartWrapper wrap)
    : ModuleHolder(std::make_shared<MobileNetV2Impl>(options, std::move(wrap))) {}

}  // namespace lockstep
