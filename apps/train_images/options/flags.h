#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Returns the flags of train_images. `strategies` are the names that --strategy accepts besides auto.
FlagTable train_flags(const std::vector<std::string>& strategies);

/// Groups of these flags, which other programs reuse.
std::vector<Flag> data_flags();
std::vector<Flag> model_flags();
std::vector<Flag> training_flags();

}  // namespace lockstep::apps
