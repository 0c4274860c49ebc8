#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/pipeline_record.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Inputs of a training; all of them must outlive the call.
struct GptTraining {
  Strategy& strategy;
  const GptTrainOptions& options;
  const GptPlan& plan;
  const GptData& data;
  Callbacks callbacks;
  std::shared_ptr<InputTimes> input_times;  ///< receives the times of making batches; null: not measured
  /// Called once before the first step; `weights` is what --init-weights loaded, or null.
  std::function<void(torch::nn::Module& model, const LoadReport* weights)> on_start;
  /// Called on worker 0 with each text that the model writes.
  std::function<void(const SampleText&)> on_sample;
  /// Called on all workers with the load of the experts in each epoch.
  std::function<void(ExpertLoad)> on_routing;
  /// Called before NotFinite is thrown if a router's numbers were not finite, with the name of the first one.
  std::function<void(const std::string& router)> on_not_finite_router;
  /// Gets the times of a step of a model that is cut into stages, on all workers.
  std::function<void(PipelineRecord)> on_pipeline;
};

/// Trains, and tests after every --test-every steps. Throws NotFinite, and what the strategy and the datasets
/// throw.
History train_gpt(const GptTraining& training);

/// Returns the schedule of the learning rate, and what gives the last epoch the steps that are left.
Callbacks gpt_step_callbacks(const GptTrainOptions& options, const GptPlan& plan);

}  // namespace lockstep::apps
