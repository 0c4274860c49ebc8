#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

namespace lockstep::benchmarks {

struct StrategyLoopOptions {
  /// Threads or workers. With `tensor` or `pipeline`, that many of them make a replica.
  int num_replicas = 1;
  /// Ranks that a GPT is cut among.
  int tensor = 1;
  /// Ranks that a GPT's layers are divided among as stages. 1: it has no stages.
  int pipeline = 1;
  /// Of the gradients; none: the library's default.
  std::optional<int64_t> bucket_bytes;
  /// Of gradients between processes, as make_gradient_compression() names it.
  std::string gradient_compression = "none";
  /// Stage of ShardingOptions. 3 needs a GPT, whose blocks are the units.
  int sharding = 0;
  /// Gradients leave while backward still runs; else all of them once it has ended.
  bool overlaps = true;
  /// The cluster of which this process is a worker with one replica, `num_replicas` being those of all; null:
  /// all replicas are in this process.
  std::shared_ptr<const ClusterResolver> cluster;
  ClusterOptions cluster_options;
};

/// MirroredStrategy, or MultiWorkerMirroredStrategy, with the training step of the README. Throws
/// std::invalid_argument if the replicas cannot have equal shares of the batch, or if they neither share one
/// GPU within this process nor have one each; and what ImageFolder throws.
std::unique_ptr<TrainingLoop> make_strategy_loop(const Workload& workload,
                                                 const StrategyLoopOptions& options);

}  // namespace lockstep::benchmarks
