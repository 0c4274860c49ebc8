#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/apps/train_mnist/epoch_report.h"
#include "lockstep/apps/train_mnist/image_data.h"
#include "lockstep/apps/train_mnist/interruption.h"
#include "lockstep/apps/train_mnist/progress_display.h"
#include "lockstep/apps/train_mnist/train_options.h"

namespace lockstep::apps {

/// What the training is done with; all of it outlives the call.
struct TrainingRun {
  Strategy& strategy;
  const TrainOptions& options;
  const TrainPlan& plan;
  const ImageData& data;
  ProgressDisplay& display;
  const InterruptionGuard& interruption;
  /// Called once, with the number of trained values, before the first step.
  std::function<void(int64_t)> on_start;
  std::function<void(const EpochReport&)> on_epoch;
};

/// Trains and tests for all epochs. Returns false where a signal has stopped it after a step. Throws
/// NumbersError, and what the strategy and the datasets throw.
bool train(const TrainingRun& run);
/// The same for one model, whatever the options say; each in a source of its own, since they share but
/// templates.
bool train_simple_cnn(const TrainingRun& run);
bool train_mobilenet_v2(const TrainingRun& run);

}  // namespace lockstep::apps
