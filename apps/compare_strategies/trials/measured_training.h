#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_run.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

struct MeasuredTraining {
  MeasuredRun run;
  std::vector<double> parameters;  ///< at the end
};

/// Trains the options' work as the process that this one is to be, and writes the measurement, and process 0
/// the final parameters. Throws what a training throws.
void measure_training(const CompareOptions& options);

/// How long replicas have waited for one another, in seconds: the mean over those of this process.
double mean_seconds_waited(Strategy& strategy);

/// All values, one after another.
std::vector<double> doubles_of(const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep::apps
