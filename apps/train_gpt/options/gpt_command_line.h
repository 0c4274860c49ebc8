#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/action.h"
#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"

namespace lockstep::apps {

struct GptCommandLine {
  Action action = Action::kTrain;
  GptTrainOptions options;
  /// Origin of each given option, by its flag; an option without an entry has its default.
  std::map<std::string, Origin> origins;
};

/// Sets the options of data, model and training from a program's arguments. Options whose flags were not
/// given, or that the program does not have, keep their values. Throws UsageError naming the flag, the
/// expected and the given value.
void read_gpt_work(const Arguments& given, GptTrainOptions& options);

/// Sets the options of the model alone, likewise.
void read_gpt_model(const Arguments& given, GptTrainOptions& options);
/// The same without --model.
void read_gpt_sizes(const Arguments& given, GptTrainOptions& options);

/// Parses the arguments after the program's name and the configuration file that --config names. Flags
/// override the file. `strategies` are the names that --strategy accepts besides auto. Throws UsageError
/// naming the flag (or the file and key), the expected and the given value.
GptCommandLine parse_gpt_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies);

}  // namespace lockstep::apps
