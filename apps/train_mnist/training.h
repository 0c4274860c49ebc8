#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "lockstep/apps/train_mnist/image_data.h"
#include "lockstep/apps/train_mnist/interruption.h"
#include "lockstep/apps/train_mnist/progress_display.h"
#include "lockstep/apps/train_mnist/train_options.h"
#include "lockstep/runtime/device.h"

namespace lockstep::apps {

/// The loss stopped being a number. The message names epoch, step and replica.
class NumbersError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What one epoch came to.
struct EpochReport {
  int64_t epoch = 0;  ///< from 1
  int64_t epochs = 0;
  double loss = 0;               ///< mean over the images trained on
  double accuracy = 0;           ///< of the same images, while the model learned
  double test_accuracy = 0;      ///< of every test image, counted once
  double images_per_second = 0;  ///< of training, over all replicas
};

/// The error for step `step` (from 1) of epoch `epoch`. It names --learning-rate as it was given, and what it
/// was scaled to.
NumbersError loss_not_finite(int64_t epoch, int64_t step, int64_t replica, const LogicalDevice& device,
                             const TrainOptions& options, const TrainPlan& plan);

/// `epoch 1/5  loss 0.1234  accuracy 0.9612  test accuracy 0.9745  412 images/s`
std::string epoch_line(const EpochReport& report);

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
