#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the parts of a memory with their names, in bytes, the kept ones first.
std::vector<std::pair<std::string, double>> memory_parts(const LayoutMemory& memory);
/// Returns the parts of a time with their names, in seconds.
std::vector<std::pair<std::string, double>> time_parts(const LayoutTime& time);

/// Returns what `plan` prints: the ranked layouts, the parts of the fastest one and the flags that run it,
/// and why faster ones do not fit. If none fits, what would.
std::string plan_report(const PlanOptions& options, const LayoutPlanner& planner, const LayoutSearch& search);

}  // namespace lockstep::apps
