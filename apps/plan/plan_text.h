#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns such as "1.2 s" or "35 ms".
std::string seconds_of(double seconds);
/// Returns the schedule of a layout's pipeline; "-" without one.
std::string schedule_of(const PlannedLayout& layout);
/// Returns where a layout has the tables of a model, such as "by rows on 2 servers".
std::string placement_text(const PlannedLayout& layout);
/// Returns what a step has many of: sequences, images or rows.
std::string examples_name(const PlanOptions& options);
/// Returns the tokens of a step of a language model.
double tokens_per_step(const PlanOptions& options);

}  // namespace lockstep::apps
