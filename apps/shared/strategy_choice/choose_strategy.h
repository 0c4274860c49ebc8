#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/make_strategy.h"

namespace lockstep::apps {

/// What a program says of itself.
struct StrategyNeeds {
  std::string program = "this program";  ///< for errors
  uint64_t seed = 1;                     ///< of the replicas' random streams
  /// None: the program does not train by parameter servers.
  std::optional<ParameterServerOptions> parameters;
};

/// Makes the strategy that --strategy, --devices, --replicas, --cross-device-ops and --threads ask for.
/// Throws UsageError naming the flags where it cannot be made here.
MadeStrategy choose_strategy(const StrategyChoice& choice, const StrategyNeeds& needs = {});

/// The cluster that the strategy would be made for, by the flags or the environment; null: none. Throws
/// UsageError as choose_strategy().
std::shared_ptr<const ClusterResolver> requested_cluster(const StrategyChoice& choice);

}  // namespace lockstep::apps
