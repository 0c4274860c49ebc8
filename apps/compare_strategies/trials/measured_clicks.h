#pragma once

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_training.h"

namespace lockstep::apps {

/// Trains a model of clicks as a process of its strategy. A worker of parameter servers, and a server, know
/// of their memory alone. Throws what a training throws.
MeasuredTraining measure_clicks(const CompareOptions& options, const CtrOptions& work);

}  // namespace lockstep::apps
