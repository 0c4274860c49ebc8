#pragma once

#include <string>
#include <vector>

#include "lockstep/strategies/parallel/parallel_plan.h"

namespace lockstep {

/// Returns whether a pattern of a plan's line names the module.
bool names_module(const std::string& pattern, const std::string& name);

/// Returns the pattern that names a module and those that differ from it in numbers only, as elements of
/// lists do: "blocks.*.up" for "blocks.0.up".
std::string pattern_of(const std::string& name);

/// Returns a line of a plan as messages show it.
std::string text_of_line(const ParallelPlanLine& line);

/// Throws InvalidArgument for a plan line that names none of `names`; `can_be_cut` are those that it could.
void refuse_unmatched(const ParallelPlanLine& line, const std::vector<std::string>& can_be_cut);

}  // namespace lockstep
