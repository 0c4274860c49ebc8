#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"

#include <algorithm>
#include <memory>

#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep::apps {

PartWrapper sharded_parts(const Strategy& strategy, ReplicaContext& replica) {
  if (strategy.sharding().stage != 3) return {};
  return [options = along(replica.axis(strategy.sharding().axis))](const ModelPart& part) {
    const auto parameters = part.module->parameters();
    const bool has_only_vectors = std::all_of(parameters.begin(), parameters.end(),
                                              [](const auto& parameter) { return parameter.dim() < 2; });
    if (has_only_vectors) return WrappedPart{part.module};
    UnitOptions own = options;
    own.name = part.name;
    const auto unit = std::make_shared<ShardedModule>(part.module, own);
    return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                         return unit->call(function, x);
                       }};
  };
}

}  // namespace lockstep::apps
