#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Returns the callbacks that check numbers and replicas. `log` receives the lines of the NaN guard.
Callbacks guard_callbacks(const RunChoice& choice, std::function<void(const std::string&)> log);

/// Adds early stopping after `patience` epochs without a better validation loss (0: none), the checkpoints of
/// the run directory, and the profiler. `paths` are none if the run is not recorded. They come after
/// callbacks that change weights or learning rates.
void add_outcome_callbacks(const RunChoice& choice, int64_t patience, const std::optional<RunPaths>& paths,
                           Callbacks& callbacks);

}  // namespace lockstep::apps
