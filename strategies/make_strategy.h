#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

namespace lockstep {

/// What a strategy is made of by name.
struct StrategyRequest {
  std::vector<std::string> devices;  ///< empty: the strategy's own choice
  StrategyOptions options;
  ParameterServerOptions parameters;  ///< of a parameter_server
  /// The job that this process is a worker of; null: what resolve_cluster() finds in the environment, where
  /// the strategy asks for it.
  std::shared_ptr<const ClusterResolver> cluster_resolver;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const StrategyRequest&)>;

/// Makes `name` a strategy that make_strategy and the programs of apps/ know. Throws InvalidArgument for an
/// empty or a taken name, `auto` and an empty factory. Thread-safe.
///
/// The table of names is the one mutable global of the library: programs register their strategies before
/// main, by
///   const bool registered = lockstep::register_strategy("my_strategy", [](const lockstep::StrategyRequest&
///   request) { ... });
bool register_strategy(const std::string& name, StrategyFactory factory);

/// All names in alphabetical order: default, mirrored, multi_worker, one_device, parameter_server, and the
/// registered ones.
std::vector<std::string> strategy_names();

struct MadeStrategy {
  std::unique_ptr<Strategy> strategy;
  std::string reason;  ///< one line: which was picked, and why
};

/// Makes a strategy by name. `auto`: multi_worker where a cluster is given, by the request or in the
/// environment, and parameter_server where that has ps tasks; else one_device for one named device, mirrored
/// for several; where none is named, mirrored if there are GPUs, else default. multi_worker blocks until all
/// workers have joined, parameter_server until all servers were reached. Throws InvalidArgument
/// listing the names for an unknown one, for a number of devices that the strategy does not take (default
/// none, one_device one), and for a factory that returns null; and what the factory throws. Thread-safe.
MadeStrategy make_strategy(const std::string& name, const StrategyRequest& request = {});

}  // namespace lockstep
