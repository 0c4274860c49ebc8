#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/input/auto_shard_policy.h"
#include "lockstep/strategies/input/input_context.h"

namespace lockstep {

/// Options of distribute_dataset() for streams. All options but `prefetch` must be the same on all workers.
struct DistributeStreamOptions {
  int64_t global_batch_size = 0;  ///< Examples of one step over all replicas. Required.
  AutoShardPolicy auto_shard = AutoShardPolicy::kAuto;
  /// Names of the stream's sources, in any form. With kFile, file i goes to worker i % workers.
  std::vector<std::string> files;
  /// Whether an epoch ends before a batch that is smaller than the others. With kFile and kOff, each worker
  /// decides by its own batches.
  bool drop_remainder = false;
  /// Seed of the order of the examples. Each epoch has its own order, the same for every number of replicas,
  /// and with kData of workers. None: the stream's order. Needs a window and batches whose traits have cat()
  /// and select().
  std::optional<uint64_t> shuffle_seed{};
  /// The most places that the shuffle moves an example. Memory holds up to two windows of examples.
  int64_t shuffle_window = 0;
  /// Number of batches made ahead in the background. 0: each is made when it is asked for.
  int prefetch = 2;
};

/// The part of a stream that this worker draws.
struct StreamSharding {
  InputContext context;  ///< For the function that makes the stream; the epoch is not set.
  /// Whether each worker draws the whole global batch and keeps its replicas' part. If false, it keeps all
  /// that it draws.
  bool is_whole = false;
  bool drop_remainder = false;
};

/// A collective of the workers: returns this worker's part of the stream. Throws ClusterError if options
/// differ between workers. Throws InvalidArgument, on all workers alike, for a global batch size below 1, for
/// a shuffle_seed with a window below 1, for kFile with fewer files than workers, and if a worker would get
/// no example of the global batch with kFile or kOff.
StreamSharding stream_sharding_of(const DistributeStreamOptions& options, const InputPlacement& placement);

}  // namespace lockstep
