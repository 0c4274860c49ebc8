#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_run.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

struct MeasuredTraining {
  MeasuredRun run;
  std::vector<double> parameters;  ///< final values
};

/// Trains as the process that options.measuring names and writes the measurement; process 0 also writes the
/// final parameters. Throws what the training throws.
void measure_training(const CompareOptions& options);

/// Returns a model's parameters, whole on worker 0 if the ranks have parts of them. A collective of the
/// workers.
std::vector<torch::Tensor> whole_parameters(Strategy& strategy, const std::vector<ModulePointer>& modules);

/// Sets the final parameters and their number.
void set_parameters(const std::vector<torch::Tensor>& parameters, MeasuredTraining& measured);

/// Sets the memory of this process's ranks; see memory_of_ranks().
void set_memory(Strategy& strategy, const std::vector<ModulePointer>& modules,
                const std::vector<std::unique_ptr<torch::optim::Optimizer>>& optimizers,
                MeasuredTraining& measured);

/// Returns how long replicas have waited for one another, in seconds: the mean over this process's replicas.
double mean_seconds_waited(Strategy& strategy);

/// Returns the values of all tensors, concatenated.
std::vector<double> doubles_of(const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep::apps
