#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {

/// Returns the bytes that a device has for the training: --device-memory, or else on CPUs what this machine
/// has left, divided by the local ranks. nullopt with --plan off, and for GPUs without --device-memory.
std::optional<double> memory_to_check(const Strategy& strategy, const LayoutPolicyChoice& choice);

/// Returns the devices of a strategy, without their rates.
PlannedCluster cluster_of(const Strategy& strategy, double memory_bytes);

/// Throws OutOfMemory if a layout needs more memory than a device has, with what it needs and the flags of
/// `program` that change least and would make it fit. Layouts that the planner does not know pass.
void refuse_if_too_large(const LayoutPlanner& planner, PlannedProgram program, const PlannedLayout& layout,
                         const LayoutChoices& choices = {});

/// Returns this machine's CPUs with their rates, which are measured here, for --plan auto. Throws UsageError
/// in a cluster and for GPUs.
PlannedCluster measured_cpus(const StrategyChoice& strategy, const LayoutPolicyChoice& choice,
                             PlannedNumbers numbers);

/// The layout that --plan auto chooses, and a line that tells it.
struct ChosenLayout {
  PlannedLayout layout;
  std::string text;
};

/// Returns the fastest layout that fits. Throws OutOfMemory if none does.
ChosenLayout fastest_layout(const LayoutPlanner& planner, PlannedProgram program,
                            const LayoutChoices& choices = {});

}  // namespace lockstep::apps
