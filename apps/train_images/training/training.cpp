#include "lockstep/apps/train_images/training/training.h"

namespace lockstep::apps {

History train(const TrainingRun& run) {
  if (run.plan.num_stages > 1) return train_in_stages(run);
  return run.options.model == ModelKind::kSimpleCnn ? train_simple_cnn(run) : train_mobilenet_v2(run);
}

}  // namespace lockstep::apps
