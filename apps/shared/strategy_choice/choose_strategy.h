#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/make_strategy.h"

namespace lockstep::apps {

/// The program's own inputs for the choice of a strategy.
struct StrategyNeeds {
  std::string program = "this program";  ///< name in errors
  uint64_t seed = 1;                     ///< seed of the replicas' random streams
  /// Unset if the program cannot train with parameter servers.
  std::optional<ParameterServerOptions> parameters;
  /// Whether the program's models have parts whose parameters can be sharded; see sharded_parts().
  bool shards_parameters = false;
  /// Whether the program's models take a context axis, along which sequences are cut.
  bool cuts_sequences = false;
};

/// Makes the strategy that --strategy, --devices, --replicas, --cross-device-ops and --threads ask for.
/// Calls load_device_plugin() before. Warns on standard error if --strategy multi_worker finds no cluster.
/// Throws UsageError naming the flags if the strategy cannot be made here.
MadeStrategy choose_strategy(const StrategyChoice& choice, const StrategyNeeds& needs = {});

/// Returns the name of a strategy whose replicas may be in several processes: tpu or multi_worker.
std::string strategy_of_workers(const Strategy& strategy);

/// Replaces `auto` by `name` if the environment describes a cluster, so that a run repeated with these
/// options does the same. The origin of --strategy is then the launcher's variable, unless flags gave the
/// cluster.
void decide_strategy(const Strategy& strategy, const std::string& name, StrategyChoice& choice,
                     std::map<std::string, Origin>& origins);

/// Returns the cluster for which the strategy would be made, from the flags or the environment; null if there
/// is none. Throws UsageError like choose_strategy().
std::shared_ptr<const ClusterResolver> requested_cluster(const StrategyChoice& choice);

}  // namespace lockstep::apps
