#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Which replica a value is made for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// Which part of the input a pipeline is to give.
struct InputContext {
  int num_input_pipelines = 1;  ///< one a process; 1 where each of them is to give all of the input
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  int64_t epoch = 0;  ///< counts from 0; for shuffling
  /// Those that this pipeline is to read: all that were given, or this worker's where they are dealt out.
  std::vector<std::string> files;
  /// What distribute_dataset asks the stream's get_batch() for; 0: no stream of its.
  int64_t batch_size = 0;

  /// Throws InvalidArgument where the replicas do not divide `global_batch_size`.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
};

/// Where the shards of a batch go.
struct InputPlacement {
  std::shared_ptr<const std::vector<LogicalDevice>> devices;  ///< of the local replicas
  int num_replicas = 1;
  int first_replica = 0;
  int num_workers = 1;
  int worker = 0;  ///< this process
  /// A collective of the workers: throws ClusterError where `lines` are not the same on all, naming the first
  /// that differ; null: one worker.
  std::function<void(const std::string& what, const std::vector<std::string>& lines)> check_same;
  /// A collective of the workers: the number that each of them has; null: one worker.
  std::function<std::vector<int64_t>(int64_t here)> gather;
  /// Tells the other workers of an error that ends this one's part; null: one worker.
  std::function<void(const std::exception_ptr& error)> report;
};

/// A collective of several workers: the examples of all their streams' next step, of which this one has
/// `here`, nothing at its stream's end. Returns nothing where all have ended. Where they all draw the whole
/// batch, each throws ClusterError unless all have as many examples.
std::optional<int64_t> examples_of_step(const InputPlacement& placement, std::optional<int64_t> here,
                                        bool is_whole);

}  // namespace lockstep
