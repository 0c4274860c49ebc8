#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/reporting/records/learning_rate_sweep.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Inputs of a training; all of them must outlive the call.
struct TrainingRun {
  Strategy& strategy;
  const TrainOptions& options;
  const TrainPlan& plan;
  const ImageData& data;
  Callbacks callbacks;
  std::shared_ptr<InputTimes> input_times;  ///< receives the times of making batches; null: not measured
  bool is_recorded = false;                 ///< whether worker 0 records the run; the same on all workers
  std::shared_ptr<RecordRun> record;        ///< null if this worker does not record
  /// Called once before the first step with the first replica's model.
  std::function<void(torch::nn::Module&)> on_start;
  /// Called once before on_start if --init-weights was given.
  std::function<void(const LoadReport&)> on_weights;
  /// Called instead of a training if --find-learning-rate was given.
  std::function<void(const LearningRateSweep&)> on_sweep;
  /// Returns whether a signal has stopped the training; the same on all workers.
  std::function<bool()> is_interrupted;
};

/// Trains and tests for all epochs. Throws NotFinite, and what the strategy and the datasets throw.
History train(const TrainingRun& run);
/// Train one model, whatever the options select. Each has a source file of its own because they share only
/// templates.
History train_simple_cnn(const TrainingRun& run);
History train_mobilenet_v2(const TrainingRun& run);
/// The same of either model as a Pipeline, along the axis of the mesh.
History train_in_stages(const TrainingRun& run);

}  // namespace lockstep::apps
