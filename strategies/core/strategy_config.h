#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/strategies/core/sharding_options.h"
#include "lockstep/strategies/input/replica_weights.h"

namespace lockstep {

class WorkerGroup;

/// The configuration of a strategy. Subclasses fill it in.
struct StrategyConfig {
  std::string name;  ///< Name of the strategy, such as MirroredStrategy; begins its errors.
  Devices devices;   ///< Device of each local replica; at least one.
  std::shared_ptr<CrossDeviceOps> cross_device_ops;      ///< Null: chosen for the devices.
  std::string cross_device_ops_reason = "as asked for";  ///< Why this op was chosen, if one is set.
  /// Threads inside each replica's operators. 0: threads_per_replica().
  int intra_op_threads = 0;
  /// Seed of the replicas' random streams. None: the seed of torch::manual_seed().
  std::optional<uint64_t> seed;
  Mesh mesh;  ///< Of the replicas of all processes. Without axes: one axis "data".
  BucketOptions buckets;
  /// Compresses gradients, if `cross_device_ops` supports it; null: no compression.
  std::shared_ptr<GradientCompression> gradient_compression;
  ShardingOptions sharding;
  /// Of the replicas of all processes. Measured weights are for one process.
  ReplicaWeights replica_weights;
  /// Limit of every wait for other replicas.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  /// The processes that train together; null: only this one. `cross_device_ops` must span them.
  std::shared_ptr<WorkerGroup> workers;
  /// Number of processes that share this machine's cores.
  int num_processes_here = 1;
  /// Whether a step may be captured; see CudaGraph.
  bool has_graphs = true;
};

}  // namespace lockstep
