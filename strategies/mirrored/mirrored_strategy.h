#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/core/strategy_options.h"

namespace lockstep {

/// Trains on several devices of one machine, with one or more replicas on each. All replicas hold the same
/// parameters and step together.
///
/// Example:
///
///     MirroredStrategy all_gpus({});                   // the CPU if there is no GPU
///     MirroredStrategy two_cpus({"cpu:0", "cpu:1"});
class MirroredStrategy : public Strategy {
 public:
  /// Takes devices as parse_device() spells them. If there are none, it takes all GPUs, else the CPU. Throws
  /// InvalidArgument for unknown and repeated devices.
  explicit MirroredStrategy(std::vector<std::string> devices, StrategyOptions options = {});
};

/// Returns the names of `num_replicas` logical devices on the one CPU: cpu:0, cpu:1, ... Throws
/// InvalidArgument if `num_replicas` is below 1.
std::vector<std::string> cpu_devices(int num_replicas);

/// Trains with one replica on the device that you name.
///
/// Example:
///
///     OneDeviceStrategy strategy("gpu:1");
class OneDeviceStrategy : public Strategy {
 public:
  /// Takes a device as parse_device() spells it. Throws InvalidArgument if it is unknown.
  explicit OneDeviceStrategy(const std::string& device, StrategyOptions options = {});
};

/// Trains with one replica on the first GPU, else on the CPU: the same program without distribution.
///
/// Example:
///
///     DefaultStrategy strategy;
class DefaultStrategy : public Strategy {
 public:
  /// Throws as StrategyOptions says.
  explicit DefaultStrategy(StrategyOptions options = {});
};

/// Returns a DefaultStrategy: there is no global strategy to look up.
std::unique_ptr<Strategy> get_strategy();

}  // namespace lockstep
