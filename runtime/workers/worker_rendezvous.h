#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/workers/worker_info.h"

namespace lockstep {

struct WorkerRendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string address;  ///< address of the store, for messages
  std::chrono::milliseconds timeout{};
  /// Returns whether worker 0 has come to the store with another job token. Then its information never comes.
  std::function<bool()> has_other_token{};
};

/// Publishes this worker's information at the workers' store and returns that of all workers, by rank. Blocks
/// until all workers have come. Throws ClusterError naming a worker that did not come within the timeout;
/// naming both workers and the fact if a worker's fact differs from worker 0's; naming the token's variable
/// if worker 0 has another one; and if another process has already come as this worker. Before it throws,
/// worker 0, which holds the store, waits at most two seconds until the others know the error too. Throws
/// what the store throws, and may wait forever if the store does not answer.
std::vector<WorkerInfo> meet_workers(c10d::Store& store, const WorkerInfo& own,
                                     const WorkerRendezvousOptions& options);

/// Returns a worker's name, such as "worker 1 (node7)".
std::string worker_name(int rank, const WorkerInfo& info);

}  // namespace lockstep
