#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/store/store_client.h"
#include "lockstep/runtime/workers/worker_info.h"

namespace lockstep {

struct WorkerRendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string address;  ///< address of the store, for messages
  std::chrono::milliseconds timeout{};
  /// Returns what else to say about a worker that has not come. May be empty.
  std::function<std::string()> hint{};
};

/// Publishes this worker's information in the job's store and returns that of all workers, by rank, without
/// their facts. Blocks until all workers have come. Throws ClusterError naming a worker that did not come
/// within the timeout; naming both workers and the fact if a worker's fact differs from worker 0's; and if
/// another process has already come as this worker. All workers that wait throw the same error then. Throws
/// std::system_error if the store is lost or does not answer.
std::vector<WorkerInfo> meet_workers(StoreClient& store, const WorkerInfo& own,
                                     const WorkerRendezvousOptions& options);

/// Returns a worker's name, such as "worker 1 (node7)".
std::string worker_name(int rank, const WorkerInfo& info);

}  // namespace lockstep
