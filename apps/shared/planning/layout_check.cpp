#include "lockstep/apps/shared/planning/layout_check.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/device_plugin.h"
#include "lockstep/apps/shared/planning/measured_rates.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep::apps {
namespace {

bool is_on_cpus(const Strategy& strategy) {
  const auto& devices = strategy.devices();
  return std::all_of(devices.begin(), devices.end(),
                     [](const LogicalDevice& device) { return device.is_cpu(); });
}

}  // namespace

std::optional<double> memory_to_check(const Strategy& strategy, const LayoutPolicyChoice& choice) {
  if (choice.plan == LayoutPolicy::kOff) return std::nullopt;
  if (!choice.device_memory.empty()) return parse_bytes("device-memory", choice.device_memory);
  if (!is_on_cpus(strategy)) return std::nullopt;
  return memory_of_machine() / strategy.num_local_replicas();
}

PlannedCluster cluster_of(const Strategy& strategy, double memory_bytes) {
  return {.devices = strategy.num_ranks(),
          .devices_per_machine = strategy.num_local_replicas(),
          .memory_bytes = memory_bytes,
          .shares_units = is_on_cpus(strategy)};
}

void refuse_if_too_large(const LayoutPlanner& planner, PlannedProgram program, const PlannedLayout& layout,
                         const LayoutChoices& choices) {
  if (planner.refusal(layout)) return;
  const double memory = planner.cluster().memory_bytes;
  const double needed = planner.memory(layout).peak();
  if (needed <= memory) return;
  const auto change = nearest_that_fits(planner, layout, choices);
  const std::string flags =
      change ? changed_flags(program, planner.training().global_batch, layout, *change) : "";
  throw OutOfMemory(
      c10::str("the training needs ", gibibytes_text(needed), " of memory on each device, which has ",
               gibibytes_text(memory),
               change ? c10::str("; it fits with ", flags) : "; no other layout of these devices fits",
               ". --plan off starts it all the same"));
}

PlannedCluster measured_cpus(const StrategyChoice& strategy, const LayoutPolicyChoice& choice,
                             PlannedNumbers numbers) {
  if (requested_cluster(strategy) != nullptr)
    throw UsageError(
        "--plan auto: expected a single process; for several, call plan and give them its flags");
  const int64_t named = static_cast<int64_t>(strategy.devices.size()) * strategy.replicas_per_device;
  const int64_t devices = std::max<int64_t>(1, strategy.replicas > 0 ? strategy.replicas : named);
  load_device_plugin(process_environment());
  const bool has_accelerator = strategy.devices.empty()
                                   ? accelerator().has_value()
                                   : parse_device(strategy.devices.front()).is_accelerator();
  if (has_accelerator)
    throw UsageError("--plan auto: expected CPUs, whose rates it measures; for GPUs, call plan with --gpu");
  PlannedCluster cluster{.devices = devices, .devices_per_machine = devices};
  cluster.flops_per_second = cluster.bytes_per_second = cluster.within.bytes_per_second = 0;
  measure_rates(numbers, cluster);
  cluster.memory_bytes = choice.device_memory.empty() ? memory_of_machine() / static_cast<double>(devices)
                                                      : parse_bytes("device-memory", choice.device_memory);
  return cluster;
}

ChosenLayout fastest_layout(const LayoutPlanner& planner, PlannedProgram program,
                            const LayoutChoices& choices) {
  const LayoutSearch search =
      search_layouts(planner, {.choices = choices, .most_ranked = 1, .most_unfit = 0});
  if (search.ranked.empty())
    throw OutOfMemory(c10::str(
        "--plan auto: no layout fits into ", gibibytes_text(planner.cluster().memory_bytes),
        search.smallest ? c10::str("; the smallest needs ", gibibytes_text(search.smallest->memory.peak()))
                        : ""));
  const auto& best = search.ranked.front();
  return {best.layout, c10::str("plan: ", layout_flags(program, planner.training().global_batch, best.layout),
                                "; ", gibibytes_text(best.memory.peak()), " of each device, ", search.num_fit,
                                " of ", search.num_candidates, " layouts fit")};
}

}  // namespace lockstep::apps
