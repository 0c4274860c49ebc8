#pragma once

#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/apps/train_mnist/options/train_options.h"
#include "lockstep/training/state/not_finite.h"

namespace lockstep::apps {

/// The error for a loss, or a tensor, that is not finite. It names --learning-rate as it was given, and what
/// it was scaled to.
NumbersError not_finite(const NotFinite::Place& place, const TrainOptions& options, const TrainPlan& plan);

}  // namespace lockstep::apps
