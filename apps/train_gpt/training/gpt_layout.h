#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::apps {

/// Returns the layout of a training.
PlannedLayout layout_of(const Strategy& strategy, const GptTrainOptions& options, const GptPlan& plan);

/// Refuses a training that needs more memory than a device has for it, before its first step: throws
/// OutOfMemory with what it needs, and the flags that change least and would make it fit. The memory of a
/// device is --device-memory, or else on CPUs what this machine has left, divided by the local ranks; GPUs
/// are checked with --device-memory only. --plan off checks nothing, and no prediction is made for layouts
/// that the planner does not know, such as several data axes beside each other.
void refuse_what_does_not_fit(const Strategy& strategy, const GptTrainOptions& options, const GptPlan& plan);

/// With --plan auto, sets the options to the fastest layout that fits, by rates that are measured here, and
/// returns a line that tells it; otherwise returns an empty text. Throws UsageError in a cluster, on GPUs,
/// and if the options give a mesh or another part of a layout; OutOfMemory if nothing fits.
std::string choose_layout(GptTrainOptions& options);

}  // namespace lockstep::apps
