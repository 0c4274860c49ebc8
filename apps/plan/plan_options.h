#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {

/// A training to plan, and the machines for it.
struct PlanOptions {
  PlannedProgram program =
      PlannedProgram::kTrainGpt;         ///< that trains the model; the others' fields are unused
  std::string model_name;                ///< as --model has it
  GptOptions model;                      ///< of train_gpt
  int64_t sequence_length = 0;           ///< of train_gpt
  TrainOptions images;                   ///< of train_images
  int64_t classes = 10;                  ///< of train_images
  CtrWork clicks;                        ///< of train_ctr
  std::vector<std::string> model_flags;  ///< that make the program train this model
  PlannedNumbers numbers = PlannedNumbers::kFloat32;
  std::string precision;  ///< as --precision has it
  PlannedTraining training;
  PlannedCluster cluster;  ///< of this machine: only the number of devices, and the memory if it is given
  bool is_here = true;     ///< whether the machine is this one, whose rates are measured
  bool has_gpus = false;   ///< whether --gpu was given
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
