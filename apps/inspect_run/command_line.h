#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Options of inspect_run.
struct InspectOptions {
  std::string folder;
  int64_t num_epochs = 5;  ///< number of last epochs to show
  bool is_json = false;
};

struct InspectCommandLine {
  enum class Action { kInspect, kHelp, kVersion };

  Action action = Action::kInspect;
  InspectOptions options;
};

/// Parses the arguments after the program's name. Throws UsageError if they are invalid.
InspectCommandLine parse_inspect_arguments(const std::vector<std::string>& arguments);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string inspect_help_text(const std::string& program = "");

}  // namespace lockstep::apps
