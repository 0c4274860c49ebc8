#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/runtime/workers/worker_info.h"

namespace lockstep {

struct WorkerRendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string place;  ///< the store's, for messages
  std::chrono::milliseconds timeout{};
};

/// Shows this worker's card at the workers' store, and returns all workers' by rank. Blocks until all have
/// come. Throws ClusterError naming a worker that has not come within the timeout; both workers and the fact
/// where one of their cards has another than worker 0's; and where another process has come as this worker.
/// Worker 0, with whom the store goes, waits then for two seconds at most until the others know it, too.
/// Throws what the store throws, and may wait for ever where it does not answer.
std::vector<WorkerInfo> meet_workers(c10d::Store& store, const WorkerInfo& own,
                                     const WorkerRendezvousOptions& options);

/// Such as "worker 1 (node7)".
std::string worker_name(int rank, const WorkerInfo& card);

}  // namespace lockstep
