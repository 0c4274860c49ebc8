#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/strategies/communication/communication_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/strategies/core/sharding_options.h"
#include "lockstep/strategies/input/replica_weights.h"

namespace lockstep {

/// Options of all strategies besides their devices. Constructors of strategies start one thread for each
/// replica. They throw InvalidArgument for negative `intra_op_threads`, for less than one replica a device,
/// for a mesh of another number of replicas, for weights that are not positive or not one for each replica,
/// for sharding by another stage or axis or together with gradient
/// compression, and for cross-device ops that cannot serve the devices or come
/// together with a communication implementation; they rethrow errors of the ops' make_channel().
///
/// Example:
///
///     MirroredStrategy strategy({"gpu:0", "gpu:1"}, {.seed = 1, .timeout = std::chrono::minutes(5)});
struct StrategyOptions {
  std::shared_ptr<CrossDeviceOps> cross_device_ops;  ///< Null: chosen for the devices.
  /// Threads inside each replica's operators. 0: OMP_NUM_THREADS, or else the cores divided by the replicas.
  int intra_op_threads = 0;
  /// Seed of the replicas' random streams, which dropout and other random operators draw from. None: the seed
  /// of torch::manual_seed() at the time the strategy is made.
  std::optional<uint64_t> seed;
  /// MirroredStrategy's replicas on each of its devices; the others accept only 1. Several replicas on a GPU
  /// share its memory and compute at the same time, each on a stream of its own.
  int replicas_per_device = 1;
  /// Arranges the ranks of all workers in a grid, along whose axes they can communicate; see
  /// ReplicaContext::axis(). Its axes cut the batch, or layers (see AxisRole). Its sizes multiply to the
  /// number of ranks. Without axes: one axis "data".
  Mesh mesh;
  /// Divides the optimizers' state, and the gradients, among the replicas. Optimizers must be elementwise
  /// (see ElementwiseStep), or scope() refuses them.
  ShardingOptions sharding;
  /// Divides global batches unequally among the replicas of all workers, for devices of different speeds: by
  /// one positive number for each replica, or by measured speeds, for which all replicas must be in one
  /// process. The pieces of distribute_datasets_from_function(), which cuts nothing, do not depend on it.
  ReplicaWeights replica_weights;
  BucketOptions buckets;
  /// Its pack size overrides that of `buckets`, its timeout overrides `timeout`.
  CommunicationOptions communication;
  /// Limit of every wait for other replicas.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
};

}  // namespace lockstep
