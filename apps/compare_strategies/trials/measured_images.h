#pragma once

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_training.h"

namespace lockstep::apps {

/// Trains an image model as one process of its strategy. Throws what the training throws.
MeasuredTraining measure_images(const CompareOptions& options, const TrainOptions& work);

}  // namespace lockstep::apps
