#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_mnist/options/train_options.h"

namespace lockstep::apps {

/// What the program is to do.
enum class Action { kTrain, kHelp, kVersion, kListDevices };

struct CommandLine {
  Action action = Action::kTrain;
  TrainOptions options;
  /// Who gave the options, by their flags; those that are missing have their default.
  std::map<std::string, Origin> origins;
};

/// Reads the arguments after the program's name, and the configuration file that --config names, over which
/// flags win; of a flag given twice, the last counts. `strategies` are the names that --strategy takes
/// besides auto. Device names are not looked at here. Throws UsageError naming the flag (or the file and the
/// key), what it takes and what was given, with the closest name where it was likely mistyped.
CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies);

/// What --help prints.
std::string help_text(const std::vector<std::string>& strategies);

}  // namespace lockstep::apps
