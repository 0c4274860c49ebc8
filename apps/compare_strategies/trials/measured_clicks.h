#pragma once

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_training.h"

namespace lockstep::apps {

/// Trains a click model as one process of its strategy. Parameter servers and their workers measure only
/// their memory. Throws what the training throws.
MeasuredTraining measure_clicks(const CompareOptions& options, const CtrOptions& work);

}  // namespace lockstep::apps
