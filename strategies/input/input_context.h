#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/strategies/input/batch_shares.h"

namespace lockstep {

/// The replica that a value is made for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// The part of the input that a pipeline should return.
struct InputContext {
  int num_input_pipelines = 1;  ///< One for each process; 1 if each of them should return all of the input.
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  int64_t epoch = 0;  ///< Counts from 0; use it to shuffle.
  /// Files that this pipeline should read: all files, or this worker's if they are dealt out.
  std::vector<std::string> files;
  /// Number of examples that distribute_dataset() passes to the stream's get_batch(). 0 outside
  /// distribute_dataset().
  int64_t batch_size = 0;

  /// Returns the batch size of each replica. Throws InvalidArgument if `global_batch_size` is below 1 or not
  /// divisible by the number of replicas.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
};

/// The replicas that the shards of a batch go to. If replicas have several ranks (see Mesh), each of these
/// gets its replica's shard.
struct InputPlacement {
  std::shared_ptr<const std::vector<LogicalDevice>> devices;  ///< Devices of the local ranks.
  int num_replicas = 1;
  int first_replica = 0;  ///< The first local rank, whose number is that of its replica if each has one rank.
  int num_workers = 1;
  int worker = 0;  ///< Number of this process.
  /// A collective of the workers: throws ClusterError if `lines` differ between them, naming the first
  /// difference. Null with one worker.
  std::function<void(const std::string& what, const std::vector<std::string>& lines)> check_same;
  /// A collective of the workers: returns the number that each of them passes. Null with one worker.
  std::function<std::vector<int64_t>(int64_t here)> gather;
  /// Tells the other workers about an error that ends this worker's part. Null with one worker.
  std::function<void(const std::exception_ptr& error)> report;
  /// The replica of each local rank, in ascending order of their first ranks. None: each rank is one.
  std::optional<std::vector<int>> replicas;
  /// Whether all ranks of each replica are in one process.
  bool has_whole_replicas = true;
  /// The division of batches among the replicas of all workers. Null: in equal pieces.
  std::shared_ptr<const BatchShares> shares;

  int replica_of(size_t local) const {
    return replicas ? replicas->at(local) : first_replica + static_cast<int>(local);
  }
  /// Returns the lowest number of a local rank's replica. If processes have whole replicas, its others
  /// follow.
  int first_local_replica() const;
  /// Returns the number of replicas that local ranks belong to.
  int num_local_replicas() const;
  /// Cuts a batch of `n` examples among the replicas of all workers. Returns the bounds as cut_equally()
  /// does.
  std::vector<int64_t> cut(int64_t n) const;
  /// Cuts a batch of `n` examples among the replicas that local ranks belong to, beginning with
  /// first_local_replica().
  std::vector<int64_t> cut_among_local(int64_t n) const;
};

/// Throws InvalidArgument, starting with `who`, if a replica's ranks are in several processes: these would
/// read different examples for it.
void check_whole_replicas(const InputPlacement& placement, const std::string& who);

/// A collective of several workers: returns the total number of examples in the next step of their streams,
/// or nothing if all streams have ended. `here` is the number of this worker's stream, nothing at its end. If
/// every worker draws the whole batch (`is_whole`), returns that batch's examples, and throws ClusterError on
/// all workers if the numbers differ.
std::optional<int64_t> examples_of_step(const InputPlacement& placement, std::optional<int64_t> here,
                                        bool is_whole);

}  // namespace lockstep
