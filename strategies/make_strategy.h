#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

namespace lockstep {

/// Arguments of a strategy that is made by name.
struct StrategyRequest {
  std::vector<std::string> devices;  ///< Empty: the strategy chooses.
  StrategyOptions options;
  ParameterServerOptions parameters;  ///< Only for parameter_server.
  /// The job of this process. Null: strategies that need a cluster use the one that resolve_cluster() finds
  /// in the environment.
  std::shared_ptr<const ClusterResolver> cluster_resolver;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const StrategyRequest&)>;

/// Registers a strategy under a name for make_strategy() and the programs of apps/. Throws InvalidArgument
/// for an empty or taken name, for `auto`, and for an empty factory. Thread-safe.
///
/// The table of names is the library's only mutable global, so that programs can register strategies before
/// main:
///
///     const bool registered = register_strategy("my_strategy", [](const StrategyRequest& request) {
///       return std::make_unique<MyStrategy>(request);
///     });
bool register_strategy(const std::string& name, StrategyFactory factory);

/// Returns all names in alphabetical order: default, mirrored, multi_worker, one_device, parameter_server,
/// tpu, and the registered ones.
std::vector<std::string> strategy_names();

struct MadeStrategy {
  std::unique_ptr<Strategy> strategy;
  std::string reason;  ///< One line: the strategy that was picked, and why.
};

/// Makes a strategy by name. `auto` picks the first that applies:
/// - parameter_server if the request or the environment gives a cluster with ps tasks;
/// - tpu for another cluster, if no devices are named, and accelerator() is a plugin with devices called tpu;
/// - multi_worker if it gives another cluster;
/// - mirrored for several devices or several replicas on a device;
/// - one_device for one device;
/// - tpu if accelerator() is a plugin whose devices are called tpu;
/// - mirrored if there are GPUs or devices of another accelerator;
/// - default.
/// multi_worker and tpu block until all workers have joined, parameter_server until all servers were reached.
/// Throws InvalidArgument listing the names for an unknown one, for a number of devices that the strategy
/// does not accept (default: none, one_device: one), and for a factory that returns null. Rethrows errors of
/// the factory. Thread-safe.
MadeStrategy make_strategy(const std::string& name, const StrategyRequest& request = {});

}  // namespace lockstep
