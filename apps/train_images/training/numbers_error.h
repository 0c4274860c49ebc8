#pragma once

#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/training/state/not_finite.h"

namespace lockstep::apps {

/// Creates the error for a loss or tensor that is not finite. It shows --learning-rate as given and after
/// scaling.
NumbersError not_finite(const NotFinite::Place& place, const TrainOptions& options, const TrainPlan& plan);

}  // namespace lockstep::apps
