#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/apps/train_images/training/training_loop.h"

namespace lockstep::apps {

History train_simple_cnn(const TrainingRun& run) {
  const auto options = simple_cnn_options(run.options, run.data.num_classes);
  return train_model<SimpleCnn>(
      run, [&](ReplicaContext& replica) { return SimpleCnn(options, sharded_parts(run.strategy, replica)); });
}

}  // namespace lockstep::apps
