#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_run.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

struct MeasuredTraining {
  MeasuredRun run;
  std::vector<double> parameters;  ///< final values
};

/// Trains as the process that options.measuring names and writes the measurement; process 0 also writes the
/// final parameters. Throws what the training throws.
void measure_training(const CompareOptions& options);

/// Sets the final parameters and their number.
void set_parameters(const std::vector<torch::Tensor>& parameters, MeasuredTraining& measured);

/// Returns how long replicas have waited for one another, in seconds: the mean over this process's replicas.
double mean_seconds_waited(Strategy& strategy);

/// Returns the values of all tensors, concatenated.
std::vector<double> doubles_of(const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep::apps
