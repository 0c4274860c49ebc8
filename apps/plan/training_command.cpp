#include "lockstep/apps/plan/training_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "lockstep/apps/shared/planning/layout_flags.h"

namespace lockstep::apps {

std::string training_flags(const PlanOptions& options, const PlannedLayout& layout) {
  std::vector<std::string> words = options.model_flags;
  words.push_back(fmt::format("--global-batch-size {}", options.training.global_batch));
  words.push_back(fmt::format("--replicas {}", options.cluster.devices_per_machine));
  words.push_back(layout_flags(options.training.global_batch, layout));
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace lockstep::apps
