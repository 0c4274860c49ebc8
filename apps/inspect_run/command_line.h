#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

/// What inspect_run was asked for.
struct InspectOptions {
  std::string folder;
  int64_t num_epochs = 5;  ///< shown, from the last one back
  bool is_json = false;
};

struct InspectCommandLine {
  enum class Action { kInspect, kHelp, kVersion };

  Action action = Action::kInspect;
  InspectOptions options;
};

/// Reads the arguments after the program's name. Throws UsageError for what is no command line of
/// inspect_run's.
InspectCommandLine parse_inspect_arguments(const std::vector<std::string>& arguments);

std::string inspect_help_text();

}  // namespace lockstep::apps
