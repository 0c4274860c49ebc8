#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/strategies/communication/communication_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// What the strategies of one machine can be told besides their devices. Their constructors start a thread a
/// replica. They throw InvalidArgument for negative threads, for a number of replicas a device below 1, and
/// for a cross-device op that cannot serve the devices or that comes with a communication implementation, and
/// what the op's make_channel() throws.
struct StrategyOptions {
  std::shared_ptr<CrossDeviceOps> cross_device_ops;  ///< null: chosen for the devices
  int intra_op_threads = 0;      ///< of each replica's operators; 0: the cores over the replicas
  std::optional<uint64_t> seed;  ///< of the replicas' random streams; none: the process's current seed
  /// MirroredStrategy's replicas on each of its devices; the others take 1 only. Several on a GPU share its
  /// memory and compute at the same time, each on a stream of its own.
  int replicas_per_device = 1;
  BucketOptions buckets;
  /// Its pack size overrides the buckets', its timeout the one below.
  CommunicationOptions communication;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of every wait for other replicas
};

/// One replica a device of this machine, or several; all hold the same parameters and step together.
class MirroredStrategy : public Strategy {
 public:
  /// Devices as parse_device spells them; none: all GPUs, else the CPU. Throws InvalidArgument for unknown or
  /// repeated devices.
  explicit MirroredStrategy(std::vector<std::string> devices, StrategyOptions options = {});
};

/// Names of `num_replicas` logical devices on the one CPU: cpu:0, cpu:1, ... Throws InvalidArgument below 1.
std::vector<std::string> cpu_devices(int num_replicas);

/// One replica on a named device.
class OneDeviceStrategy : public Strategy {
 public:
  /// A device as parse_device spells it. Throws InvalidArgument for an unknown one.
  explicit OneDeviceStrategy(const std::string& device, StrategyOptions options = {});
};

/// One replica on the first GPU, else the CPU: the same program without distribution.
class DefaultStrategy : public Strategy {
 public:
  /// Throws as StrategyOptions says.
  explicit DefaultStrategy(StrategyOptions options = {});
};

/// A DefaultStrategy: there is no global one to look up.
std::unique_ptr<Strategy> get_strategy();

}  // namespace lockstep
