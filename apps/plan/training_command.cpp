#include "lockstep/apps/plan/training_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "lockstep/apps/shared/planning/layout_flags.h"

namespace lockstep::apps {

std::string training_flags(const PlanOptions& options, const PlannedLayout& layout) {
  std::vector<std::string> words = options.model_flags;
  words.push_back(fmt::format("--global-batch-size {}", options.training.global_batch));
  // Each worker of parameter servers has one device.
  if (layout.servers == 0) words.push_back(fmt::format("--replicas {}", options.cluster.devices_per_machine));
  const std::string flags = layout_flags(options.program, options.training.global_batch, layout);
  if (!flags.empty()) words.push_back(flags);
  return fmt::format("{}", fmt::join(words, " "));
}

std::string training_command(const PlanOptions& options, const PlannedLayout& layout) {
  std::string command = program_name(options.program) + " " + training_flags(options, layout);
  if (layout.servers == 0 || options.cluster.machines() > 1) return command;
  return fmt::format("lockstep_launch_local --ps {} --{} {} {}", layout.servers,
                     options.has_gpus ? "gpus" : "workers", layout.data, command);
}

}  // namespace lockstep::apps
