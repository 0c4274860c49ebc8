#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/gpt_parts.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {

/// A training to plan, and the machines for it.
struct PlanOptions {
  GptOptions model;
  std::vector<std::string> model_flags;  ///< that make train_gpt train this model
  int64_t sequence_length = 0;
  PlannedNumbers numbers = PlannedNumbers::kFloat32;
  std::string precision;  ///< as --precision has it
  PlannedTraining training;
  PlannedCluster cluster;  ///< of this machine: only the number of devices, and the memory if it is given
  bool is_here = true;     ///< whether the machine is this one, whose rates are measured
  SearchOptions search;
  double search_seconds = 0;  ///< that the search has taken
  std::string json, svg;      ///< paths; empty: none
};

struct PlanCommandLine {
  enum class Action { kPlan, kHelp, kVersion };

  Action action = Action::kPlan;
  PlanOptions options;
};

/// Parses the arguments after the program's name. Throws UsageError naming the flag, the expected and the
/// given value.
PlanCommandLine parse_plan_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep::apps
