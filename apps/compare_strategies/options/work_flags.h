#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compared_work.h"
#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Returns the flags that choose the training to compare: those of train_images, train_ctr and train_gpt, one
/// for each name, and those of a strategy that have a meaning here.
std::vector<Flag> work_flags(const std::vector<std::string>& strategies);

/// Returns the training that a program's arguments ask for; --model decides of which kind it is. Throws
/// UsageError naming the flag, the expected and the given value, also for a flag that the kind does not have,
/// and CheckpointError if a config.json beside --init-weights cannot be used.
ComparedWork read_work(const Arguments& given, const std::vector<std::string>& strategies);

/// Returns the models of clicks for messages: "wide_deep or dlrm".
std::string models_of_clicks_text();

}  // namespace lockstep::apps
