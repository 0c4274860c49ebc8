#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"

namespace lockstep::apps {

/// The flags of a StrategyChoice. `strategies` are the names that --strategy takes besides auto.
std::vector<Flag> strategy_flags(const std::vector<std::string>& strategies);

/// What a program's arguments say of it; what was not given stays. Throws UsageError naming the flag, what it
/// takes and what was given.
void read_strategy(const Arguments& given, std::vector<std::string> strategies, StrategyChoice& choice);

/// The names of these that a Trainer trains by: all but parameter_server.
std::vector<std::string> strategies_of_trainer(std::vector<std::string> strategies);

}  // namespace lockstep::apps
