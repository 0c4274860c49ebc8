#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

class WorkerGroup;

/// What a strategy is made of. Subclasses fill it in.
struct StrategyConfig {
  std::string name;                                      ///< such as MirroredStrategy; begins its errors
  Devices devices;                                       ///< one local replica each, at least one
  std::shared_ptr<CrossDeviceOps> cross_device_ops;      ///< null: chosen for the devices
  std::string cross_device_ops_reason = "as asked for";  ///< why it is that one, where there is one
  int intra_op_threads = 0;      ///< of each replica; 0: the machine's cores over the replicas
  std::optional<uint64_t> seed;  ///< of the replicas' generators; none: the process's current seed
  BucketOptions buckets;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of every wait for other replicas
  /// The processes that train together; null: this one alone. `cross_device_ops` must be over them.
  std::shared_ptr<WorkerGroup> workers;
  int num_processes_here = 1;  ///< that share this machine's cores
  bool has_graphs = true;      ///< whether a step may be captured (CudaGraph)
};

}  // namespace lockstep
