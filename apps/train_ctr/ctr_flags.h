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

/// Sets the options of `work` from a program's arguments. Options whose flags were not given, or that the
/// program does not have, keep their values. Throws UsageError naming the flag, the expected and the given
/// value.
void read_ctr_work(const Arguments& given, CtrWork& work);

enum class CtrAction { kTrain, kHelp, kVersion, kListDevices };

struct CtrCommandLine {
  CtrAction action = CtrAction::kTrain;
  CtrOptions options;
};

/// Parses the arguments after the program's name. `strategies` are the names that --strategy accepts besides
/// auto. Throws UsageError as read_ctr_work() does.
CtrCommandLine parse_ctr_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string ctr_help_text(const std::vector<std::string>& strategies, const std::string& program = "");

}  // namespace lockstep::apps
