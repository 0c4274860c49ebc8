#pragma once

#include "lockstep/apps/train_mnist/train_options.h"
#include "lockstep/training/fit_loop.h"
#include "lockstep/training/run_directory.h"
#include "lockstep/training/show_progress.h"

namespace lockstep::apps {

/// Learning rates, early stopping, the NaN guard and the profiler as the options ask for them.
Callbacks training_callbacks(const TrainOptions& options, const TrainPlan& plan);

/// How train_mnist speaks of a fit.
ShowProgressOptions progress_options();

}  // namespace lockstep::apps
