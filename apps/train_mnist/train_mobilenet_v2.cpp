#include "lockstep/apps/train_mnist/training_loop.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/strategies/sync_batch_norm.h"

namespace lockstep::apps {

History train_mobilenet_v2(const TrainingRun& run) {
  const bool is_flattened = run.options.head == HeadKind::kFlattenedDense;
  MobileNetV2Options options{
      .num_classes = run.data.num_classes,
      .in_channels = channels_of(run.options.model),
      .head = is_flattened ? MobileNetV2Head::kFlattenedDense : MobileNetV2Head::kGlobalAverage,
      .image_size = run.options.image_size};
  if (run.options.sync_batch_norm) {
    options.norm_layer = [](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels)); };
  }
  return train_model<MobileNetV2>(run, [&](ReplicaContext&) { return MobileNetV2(options); });
}

}  // namespace lockstep::apps
