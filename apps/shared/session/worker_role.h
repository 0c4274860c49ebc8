#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Tasks of this worker besides training.
struct WorkerRole {
  bool is_chief = false;                ///< whether this is worker 0 or the only worker
  bool is_silent = false;               ///< whether to print only errors
  bool is_recorded = false;             ///< whether worker 0 records the run; the same on all workers
  bool is_saved = false;                ///< whether the training is saved; the same on all workers
  std::vector<std::string> hosts = {};  ///< hosts of all workers if the run is recorded
};

/// Decides the role together with the other workers, by collectives. Throws FolderError if this worker cannot
/// write a folder that it has to write.
WorkerRole role_of(Strategy& strategy, const RunChoice& choice);

/// Returns the number of threads that each replica's operators have.
int threads_per_replica(Strategy& strategy);

}  // namespace lockstep::apps
