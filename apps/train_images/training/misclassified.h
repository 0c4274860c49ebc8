#pragma once

#include <torch/types.h>

#include "lockstep/apps/train_images/training/training.h"

namespace lockstep::apps {

/// Records the test images that `logits` [images, classes] classify wrongly in run.record: their number, and
/// those with the most confident predictions. Does nothing if run.record is null.
void record_misclassified(const TrainingRun& run, const torch::Tensor& logits);

}  // namespace lockstep::apps
