#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/device.h"

namespace lockstep {

/// Which replica a value is made for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// Which part of the input a pipeline is to give.
struct InputContext {
  int num_input_pipelines = 1;  ///< one a process
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  int64_t epoch = 0;  ///< counts from 0; for shuffling

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
  /// A collective of the workers: throws ClusterError where `value` is not the same on all; null: one worker.
  std::function<void(const std::string& what, const std::string& value)> check_same;
  /// A collective of the workers: the numbers' sums over them; null: one worker.
  std::function<std::vector<int64_t>(const std::vector<int64_t>& here)> sum;
};

}  // namespace lockstep
