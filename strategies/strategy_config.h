#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/bucket_layout.h"
#include "lockstep/runtime/device.h"
#include "lockstep/strategies/cross_device_ops.h"

namespace lockstep {

/// What a strategy is made of. Subclasses fill it in.
struct StrategyConfig {
  std::string name;                                  ///< such as MirroredStrategy; begins its errors
  Devices devices;                                   ///< one local replica each, at least one
  std::shared_ptr<CrossDeviceOps> cross_device_ops;  ///< null: chosen for the devices
  int intra_op_threads = 0;      ///< of each replica; 0: the machine's cores over the replicas
  std::optional<uint64_t> seed;  ///< of the replicas' generators; none: the process's current seed
  BucketOptions buckets;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of every wait for other replicas
};

}  // namespace lockstep
