#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"

namespace lockstep::apps {

/// Returns the flags of a StrategyChoice. `strategies` are the names that --strategy accepts besides auto.
std::vector<Flag> strategy_flags(const std::vector<std::string>& strategies);

/// Reads the given flags into `choice`; fields whose flag was not given keep their value. Throws UsageError
/// naming the flag, the expected value and the given one.
void read_strategy(const Arguments& given, std::vector<std::string> strategies, StrategyChoice& choice);

/// Returns the value of each flag but --list-devices.
settings::NamedValues strategy_values(const StrategyChoice& choice);

/// Returns the strategies that a Trainer can use: all but parameter_server.
std::vector<std::string> strategies_of_trainer(std::vector<std::string> strategies);

}  // namespace lockstep::apps
