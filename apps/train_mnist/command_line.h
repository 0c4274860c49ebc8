#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/train_mnist/train_options.h"

namespace lockstep::apps {

/// What the program is to do.
enum class Action { kTrain, kHelp, kVersion, kListDevices };

struct CommandLine {
  Action action = Action::kTrain;
  TrainOptions options;
};

/// Reads the arguments after the program's name; of a flag given twice, the last counts. `strategies` are the
/// names that --strategy takes besides auto. Device names are not looked at here. Throws UsageError naming
/// the flag, what it takes and what was given, with the closest name where it was likely mistyped.
CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies);

/// What --help prints.
std::string help_text(const std::vector<std::string>& strategies);

}  // namespace lockstep::apps
