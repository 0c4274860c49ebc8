#include "lockstep/apps/train_images/training/model_choice.h"

#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"

namespace lockstep::apps {

SimpleCnnOptions simple_cnn_options(const TrainOptions& options, int64_t num_classes) {
  return {.num_classes = num_classes,
          .in_channels = channels_of(options.model),
          .image_size = options.image_size};
}

MobileNetV2Options mobilenet_v2_options(const TrainOptions& options, int64_t num_classes) {
  const bool is_flattened = options.head == HeadKind::kFlattenedDense;
  MobileNetV2Options mobilenet{
      .num_classes = num_classes,
      .in_channels = channels_of(options.model),
      .head = is_flattened ? MobileNetV2Head::kFlattenedDense : MobileNetV2Head::kGlobalAverage,
      .image_size = options.image_size};
  if (options.sync_batch_norm)
    mobilenet.norm_layer = [](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels)); };
  return mobilenet;
}

}  // namespace lockstep::apps
