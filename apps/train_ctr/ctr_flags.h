#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

/// The groups of flags that other programs take what they need of.
std::vector<Flag> ctr_data_flags();
std::vector<Flag> ctr_model_flags();
std::vector<Flag> ctr_training_flags();

/// What a program's arguments say of the work; options whose flags were not given, or which the program does
/// not have, stay. Throws UsageError naming the flag, what it takes and what was given.
void read_ctr_work(const Arguments& given, CtrWork& work);

enum class CtrAction { kTrain, kHelp, kVersion, kListDevices };

struct CtrCommandLine {
  CtrAction action = CtrAction::kTrain;
  CtrOptions options;
};

/// Reads the arguments after the program's name; `strategies` are the names that --strategy takes besides
/// auto. Throws UsageError as read_ctr_work().
CtrCommandLine parse_ctr_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies);

/// What --help prints.
std::string ctr_help_text(const std::vector<std::string>& strategies);

}  // namespace lockstep::apps
