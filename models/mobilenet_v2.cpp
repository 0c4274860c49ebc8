#include "lockstep/models/mobilenet_v2.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "lockstep/models/internal/inverted_residual.h"

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

}  // namespace

MobileNetV2Impl::MobileNetV2Impl(const MobileNetV2Options& options) : options_(options) {
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

  features_ = register_module("features", torch::nn::Sequential());
  features_->push_back(ConvolutionNormRelu6(
      ConvolutionOptions{
          .in_channels = options_.in_channels, .out_channels = channels, .kernel_size = 3, .stride = 2},
      options_.norm_layer));
  for (const auto& stage : kStages) {
    const int64_t out_channels = round_channels(stage.channels * width);
    for (int64_t repeat = 0; repeat < stage.repeats; ++repeat) {
      features_->push_back(InvertedResidual(InvertedResidualOptions{.in_channels = channels,
                                                                    .out_channels = out_channels,
                                                                    .stride = repeat == 0 ? stage.stride : 1,
                                                                    .expansion = stage.expansion,
                                                                    .norm_layer = options_.norm_layer}));
      channels = out_channels;
    }
  }
  features_->push_back(ConvolutionNormRelu6(
      ConvolutionOptions{.in_channels = channels, .out_channels = last_channels}, options_.norm_layer));

  classifier_ = register_module("classifier", torch::nn::Sequential());
  if (options_.head == MobileNetV2Head::kGlobalAverage) {
    torch::nn::Linear dense(last_channels, options_.num_classes);
    torch::nn::init::normal_(dense->weight, 0, 0.01);
    torch::nn::init::zeros_(dense->bias);
    classifier_->push_back(torch::nn::Dropout(options_.dropout));
    classifier_->push_back(dense);
    return;
  }
  const int64_t pooled = feature_map_size(options_.image_size) / 2;
  const std::array<torch::nn::Linear, 2> layers = {
      torch::nn::Linear(last_channels * pooled * pooled, kHeadUnits),
      torch::nn::Linear(kHeadUnits, options_.num_classes)};
  for (const auto& layer : layers) {
    torch::nn::init::xavier_uniform_(layer->weight);
    torch::nn::init::zeros_(layer->bias);
    classifier_->push_back(layer);
  }
}

torch::Tensor MobileNetV2Impl::forward(const torch::Tensor& images) {
  if (images.dim() != 4 || images.size(1) != options_.in_channels) {
    std::ostringstream message;
    message << "[MobileNetV2] expected images of shape [N, " << options_.in_channels << ", H, W], but got "
            << images.sizes();
    throw std::invalid_argument(message.str());
  }
  // channels_last: 2 times as fast as NCHW on a CPU, measured over forward and backward.
  auto features = features_->forward(images.contiguous(torch::MemoryFormat::ChannelsLast));
  if (options_.head == MobileNetV2Head::kGlobalAverage) {
    return classifier_->forward(features.mean({2, 3}));
  }
  return classifier_->forward(torch::avg_pool2d(features, 2).flatten(1));
}

MobileNetV2::MobileNetV2(const MobileNetV2Options& options)
    : ModuleHolder(std::make_shared<MobileNetV2Impl>(options)) {}

}  // namespace lockstep
