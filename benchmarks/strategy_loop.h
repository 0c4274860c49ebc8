#pragma once

#include <memory>
#include <optional>

#include "lockstep/benchmarks/training_loop.h"
#include "lockstep/strategies/multi_worker_mirrored_strategy.h"

namespace lockstep::benchmarks {

struct StrategyLoopOptions {
  int num_replicas = 1;
  /// Of the gradients; none: the library's default.
  std::optional<int64_t> bucket_bytes;
  /// The cluster of which this process is a worker with one replica, `num_replicas` being those of all; null:
  /// all replicas are in this process.
  std::shared_ptr<const ClusterResolver> cluster;
  ClusterOptions cluster_options;
};

/// MirroredStrategy, or MultiWorkerMirroredStrategy, with the training step of the README. Throws
/// std::invalid_argument where the replicas cannot have equal shares of the batch, and what ImageFolder
/// throws.
std::unique_ptr<TrainingLoop> make_strategy_loop(const Workload& workload,
                                                 const StrategyLoopOptions& options);

}  // namespace lockstep::benchmarks
