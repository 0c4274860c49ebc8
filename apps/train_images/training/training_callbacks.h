#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Returns the callbacks that the options select: the NaN guard, learning rates, averages of the weights,
/// early stopping, checkpoints and the profiler. `paths` are those of the run's directory, which only worker
/// 0 writes to; none if the run is not recorded. `log` receives the lines of the NaN guard.
Callbacks training_callbacks(const TrainOptions& options, const TrainPlan& plan,
                             const std::optional<RunPaths>& paths,
                             std::function<void(const std::string&)> log);

/// Returns how train_images shows progress.
ShowProgressOptions progress_options();

}  // namespace lockstep::apps
