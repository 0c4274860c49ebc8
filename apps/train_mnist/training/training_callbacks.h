#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/apps/train_mnist/options/train_options.h"
#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Learning rates, early stopping, the NaN guard, checkpoints and the profiler as the options ask for them.
/// `paths` are those of the run's directory, which worker 0 alone writes into; none: the run is not recorded.
/// `say` gets the lines of the NaN guard.
Callbacks training_callbacks(const TrainOptions& options, const TrainPlan& plan,
                             const std::optional<RunPaths>& paths,
                             std::function<void(const std::string&)> say);

/// How train_mnist speaks of a fit.
ShowProgressOptions progress_options();

}  // namespace lockstep::apps
