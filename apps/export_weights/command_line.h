#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

enum class ExportAction { kExport, kHelp, kVersion };

struct ExportCommandLine {
  ExportAction action = ExportAction::kExport;
  std::string in;
  std::string out;
  bool replaces = false;  ///< a file that is there already
};

/// Reads the arguments after the program's name. Throws UsageError naming what was expected and what was
/// given, with the closest flag where it was likely mistyped, and for an OUT whose ending names no format.
ExportCommandLine parse_export_command_line(const std::vector<std::string>& arguments);

/// What --help prints.
std::string export_help_text();

}  // namespace lockstep::apps
