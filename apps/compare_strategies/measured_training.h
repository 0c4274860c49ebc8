#pragma once

#include "lockstep/apps/compare_strategies/compare_options.h"

namespace lockstep::apps {

/// Trains the options' work by the strategy that this process is to measure, and writes the measurement, and
/// worker 0 the final parameters. Throws what a training throws.
void measure_training(const CompareOptions& options);

}  // namespace lockstep::apps
