#pragma once

#include <torch/types.h>

#include "lockstep/apps/train_mnist/training/training.h"

namespace lockstep::apps {

/// Gives run.record, where there is one, the test images that `logits` [images, classes] are wrong about: the
/// number of them, and those that the model was surest of.
void record_misclassified(const TrainingRun& run, const torch::Tensor& logits);

}  // namespace lockstep::apps
