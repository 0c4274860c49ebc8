#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

/// Groups of flags that other programs reuse.
std::vector<Flag> ctr_data_flags();
std::vector<Flag> ctr_model_flags();
std::vector<Flag> ctr_training_flags();

/// Returns all flags of train_ctr. `strategies` are the names that --strategy accepts besides auto.
FlagTable ctr_flags(const std::vector<std::string>& strategies);

/// Sets the options of `work` from a program's arguments. Options whose flags were not given, or that the
/// program does not have, keep their values. Throws UsageError naming the flag, the expected and the given
/// value.
void read_ctr_work(const Arguments& given, CtrWork& work);

}  // namespace lockstep::apps
