#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Groups of flags that other programs reuse.
std::vector<Flag> gpt_data_flags();
std::vector<Flag> gpt_model_flags();
std::vector<Flag> gpt_training_flags();

/// Returns the flags of train_gpt. `strategies` are the names that --strategy accepts besides auto.
FlagTable gpt_flags(const std::vector<std::string>& strategies);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string gpt_help_text(const std::vector<std::string>& strategies, const std::string& program = "");

}  // namespace lockstep::apps
