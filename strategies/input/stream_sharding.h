#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/strategies/input/auto_shard_policy.h"
#include "lockstep/strategies/input/input_context.h"

namespace lockstep {

/// How distribute_dataset() cuts a stream. All but prefetch are the same on all workers.
struct DistributeStreamOptions {
  int64_t global_batch_size = 0;  ///< examples of one step over all replicas; must be given
  AutoShardPolicy auto_shard = AutoShardPolicy::kAuto;
  /// What the stream is read from, by any names: kFile deals them out, file i to worker i % workers.
  std::vector<std::string> files;
  /// Ends an epoch before a batch that is smaller than the others; by kFile and kOff each worker's by itself.
  bool drop_remainder = false;
  /// Batches made ahead in the background; 0 makes each when it is asked for.
  int prefetch = 2;
};

/// Which part of a stream's examples this worker draws, and who gets them.
struct StreamSharding {
  InputContext context;  ///< for the function that makes the stream, but for the epoch
  /// Each worker draws the whole global batch and keeps its replicas' part; else what it draws is theirs.
  bool is_whole = false;
  bool drop_remainder = false;
};

/// A collective of the workers. Throws ClusterError for options that differ between them, InvalidArgument for
/// a global batch size below 1, for kFile with fewer files than workers, and where by kFile or kOff the
/// global batch has no example for some worker, on all workers alike.
StreamSharding stream_sharding_of(const DistributeStreamOptions& options, const InputPlacement& placement);

}  // namespace lockstep
