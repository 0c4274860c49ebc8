#pragma once

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_training.h"

namespace lockstep::apps {

/// Trains a language model as one process of its strategy, at a constant learning rate; examples are tokens.
/// Throws what the training throws.
MeasuredTraining measure_tokens(const CompareOptions& options, const GptTrainOptions& work);

}  // namespace lockstep::apps
