#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// How the examples of a stream are divided among the workers, as tf.distribute has it. One worker gets the
/// same batches by all of them.
enum class AutoShardPolicy {
  kAuto,  ///< kFile where each worker gets a file, else kData
  kOff,   ///< by the stream itself: each worker draws its share of the global batch from what it makes
  kData,  ///< all workers read the same stream, and each keeps its replicas' part of every global batch
  kFile,  ///< each worker reads files of its own, and draws its share of the global batch from them
};

/// `auto`, `off`, `data` or `file`.
std::string auto_shard_name(AutoShardPolicy policy);

/// What kAuto is for so many files, and the other policies as they are. Throws InvalidArgument for kFile with
/// fewer files than workers.
AutoShardPolicy resolve_auto_shard(AutoShardPolicy policy, size_t num_files, int num_workers);

/// File i goes to worker i % `num_workers`.
std::vector<std::string> files_of_worker(const std::vector<std::string>& files, int worker, int num_workers);

/// Of `global_batch_size` examples those that replicas [first, first + count) of `num_replicas` draw
/// together: the shares of all workers add up to it, and differ by less than one example a replica.
int64_t share_of_global_batch(int64_t global_batch_size, int first, int count, int num_replicas);

}  // namespace lockstep
