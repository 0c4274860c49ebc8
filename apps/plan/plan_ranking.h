#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the table of the layouts that fit, the fastest first.
std::string ranking_text(const PlanOptions& options, const LayoutPlanner& planner,
                         const LayoutSearch& search);

}  // namespace lockstep::apps
