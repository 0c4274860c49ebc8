#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/command_line/numbers_error.h"
#include "lockstep/apps/train_mnist/train_options.h"

namespace lockstep::apps {

/// The error for step `step` (from 1) of epoch `epoch`, where replica `replica` on device `device` got it. It
/// names --learning-rate as it was given, and what it was scaled to.
NumbersError loss_not_finite(int64_t epoch, int64_t step, int64_t replica, const std::string& device,
                             const TrainOptions& options, const TrainPlan& plan);

}  // namespace lockstep::apps
