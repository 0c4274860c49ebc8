#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the flags with which the program trains the planned model in a layout: those of the model, the
/// batch, the mesh and what belongs to it.
std::string training_flags(const PlanOptions& options, const PlannedLayout& layout);

/// Returns the command, on one machine: with parameter servers, one that starts all processes; on several
/// machines, that of each process.
std::string training_command(const PlanOptions& options, const PlannedLayout& layout);

}  // namespace lockstep::apps
