#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "lockstep/apps/train_mnist/data/image_data.h"
#include "lockstep/apps/train_mnist/options/train_options.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// What the training is done with; all of it outlives the call.
struct TrainingRun {
  Strategy& strategy;
  const TrainOptions& options;
  const TrainPlan& plan;
  const ImageData& data;
  Callbacks callbacks;
  bool is_recorded = false;           ///< by worker 0: the same on all workers
  std::shared_ptr<RecordRun> record;  ///< null: not by this one
  /// Called once, with the first replica's model as it starts, before the first step.
  std::function<void(torch::nn::Module&)> on_start;
  /// Called once before on_start where --init-weights was given.
  std::function<void(const LoadReport&)> on_weights;
  /// Whether a signal has stopped it; the same on all workers.
  std::function<bool()> is_interrupted;
};

/// Trains and tests for all epochs. Throws NotFinite, and what the strategy and the datasets throw.
History train(const TrainingRun& run);
/// The same for one model, whatever the options say; each in a source of its own, since they share but
/// templates.
History train_simple_cnn(const TrainingRun& run);
History train_mobilenet_v2(const TrainingRun& run);

}  // namespace lockstep::apps
