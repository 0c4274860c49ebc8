#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// What train_mnist takes on its command line; `strategies` are the names that --strategy takes besides auto.
FlagTable train_flags(const std::vector<std::string>& strategies);

/// Its groups, of which other programs take what they need.
std::vector<Flag> data_flags();
std::vector<Flag> model_flags();
std::vector<Flag> training_flags();
std::vector<Flag> record_flags();

}  // namespace lockstep::apps
