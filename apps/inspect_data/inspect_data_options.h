#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Options of inspect_data.
struct InspectDataOptions {
  std::string place;               ///< as it was given
  std::vector<std::string> paths;  ///< the places in it
  int64_t num_rows = 0;            ///< to read; 0: all
  bool is_json = false;
  std::string html;  ///< file for the page; empty: none
  bool skips_bad = false;
  bool is_quiet = false;
  int64_t threads = 0;  ///< 0: one per core
};

struct InspectDataCommandLine {
  enum class Action { kInspect, kHelp, kVersion };

  Action action = Action::kInspect;
  InspectDataOptions options;
};

/// Parses the arguments after the program's name. Throws UsageError if they are invalid.
InspectDataCommandLine parse_inspect_data_arguments(const std::vector<std::string>& arguments);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string inspect_data_help_text(const std::string& program = "");

}  // namespace lockstep::apps
