#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/apps/shared/session/worker_role.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {

/// A program's training by a strategy.
struct StrategyRun {
  std::string program;
  uint64_t seed = 1;
  bool cuda_graph = false;         ///< whether steps are to be captured
  bool shards_parameters = false;  ///< see StrategyNeeds
  bool cuts_sequences = false;     ///< the same
  std::function<void(const MadeStrategy& made, InterruptionGuard& interruption,
                     std::chrono::steady_clock::time_point began)>
      train;
};

/// Makes the chosen strategy and calls `train`, which gets the time of this call. Blocks until it returns.
/// Throws Stopped if `train` does, and Failure for all other errors; the other workers are told of both.
/// Throws UsageError if the strategy cannot be made.
void run_by_strategy(const StrategyChoice& choice, const StrategyRun& run);

/// Creates the run directory if the run is recorded and this worker is the chief, and puts its name into the
/// choice: a run that is started again gets another one. Throws RunDirectoryError as RunDirectory does.
std::optional<RunDirectory> open_run_directory(const Strategy& strategy, const WorkerRole& role,
                                               RunChoice& choice);

}  // namespace lockstep::apps
