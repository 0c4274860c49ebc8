#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the plan as JSON: the model, the machines, and the shown layouts with memory in bytes and time in
/// seconds, by part. docs/planning.md describes it.
std::string plan_json(const PlanOptions& options, const LayoutPlanner& planner, const LayoutSearch& search);

}  // namespace lockstep::apps
