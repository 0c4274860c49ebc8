#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/apps/train_images/training/training_loop.h"

namespace lockstep::apps {

History train_mobilenet_v2(const TrainingRun& run) {
  const auto options = mobilenet_v2_options(run.options, run.data.num_classes);
  return train_model<MobileNetV2>(run, [&](ReplicaContext& replica) {
    return MobileNetV2(options, sharded_parts(run.strategy, replica));
  });
}

}  // namespace lockstep::apps
