#include "lockstep/strategies/internal/server_strategies.h"

#include "lockstep/strategies/make_strategy.h"

namespace lockstep {

void add_server_strategies(std::map<std::string, StrategyFactory>& factories) {
  factories["parameter_server"] = [](const StrategyRequest& request) {
    return std::make_unique<ParameterServerStrategy>(request.cluster_resolver, request.devices,
                                                     request.parameters, request.options);
  };
}

}  // namespace lockstep
