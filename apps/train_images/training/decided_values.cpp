#include "lockstep/apps/train_images/training/decided_values.h"

#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"

namespace lockstep::apps {

void decide_values(CommandLine& line, const DataLocation& location, const Strategy& strategy) {
  TrainOptions& options = line.options;
  if (options.data == "auto") {
    options.data = location.kind == DataKind::kGenerated ? "generated" : location.path;
    options.test_data = location.test_path;
    if (!location.variable.empty())
      line.origins["data"] = {.kind = OriginKind::kEnvironment, .name = location.variable};
  }
  decide_strategy(strategy, strategy_of_workers(strategy), options, line.origins);
}

}  // namespace lockstep::apps
