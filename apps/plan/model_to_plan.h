#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/plan/plan_options.h"
#include "lockstep/apps/shared/command_line/arguments.h"

namespace lockstep::apps {

/// Returns the names that --model takes, of the models of one program.
std::vector<std::string> planned_model_names(PlannedProgram program);

/// Reads the model as the program that trains it does, and notes the flags that give it; and how it is
/// trained, in which layouts. Throws UsageError naming the flag, also for flags of other models.
void read_model_to_plan(const Arguments& given, PlanOptions& options);

}  // namespace lockstep::apps
