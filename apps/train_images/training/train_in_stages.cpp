#include "lockstep/apps/train_images/training/image_stages.h"
#include "lockstep/apps/train_images/training/training_loop.h"

namespace lockstep::apps {

History train_in_stages(const TrainingRun& run) {
  return train_model<Pipeline>(
      run,
      [&](ReplicaContext& replica) {
        return make_image_stages(run.options, run.plan, run.data.num_classes, run.strategy, replica);
      },
      train_image_stages);
}

}  // namespace lockstep::apps
