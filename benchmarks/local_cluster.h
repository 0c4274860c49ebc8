#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/benchmarks/child_process.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

namespace lockstep::benchmarks {

/// Worker processes on this machine, connected over loopback; this process is worker 0.
struct LocalCluster {
  std::vector<std::unique_ptr<ChildProcess>> others;
  std::shared_ptr<const ClusterResolver> resolver;  ///< of this process
  ClusterOptions options;                           ///< likewise

  void write_line(const std::string& line) const;
  /// Lets the others end. They wait for worker 0's end, and it for theirs: call it before that.
  void close_inputs() const;
  /// Blocks for one line of each of the others.
  void read_lines() const;
};

/// Starts the others as `job`, which finds its place in its environment (TF_CONFIG). They wait for worker 0.
LocalCluster start_local_cluster(const Command& job, int num_workers);

/// Throws std::invalid_argument where this process's environment names no cluster.
std::shared_ptr<const ClusterResolver> cluster_of_job();

}  // namespace lockstep::benchmarks
