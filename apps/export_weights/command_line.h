#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

enum class ExportAction { kExport, kHelp, kVersion };

struct ExportCommandLine {
  ExportAction action = ExportAction::kExport;
  std::string in;
  std::string out;        ///< a file, or with `model` a folder
  std::string model;      ///< the model.json of a language model, to export for Hugging Face; empty: none
  bool replaces = false;  ///< whether to overwrite an existing file
};

/// Parses the arguments after the program's name. Throws UsageError that says what was expected and what was
/// given, with the closest flag if it was likely mistyped. Also throws it if the ending of OUT names no
/// format, or with --model, if it names one.
ExportCommandLine parse_export_command_line(const std::vector<std::string>& arguments);

/// Returns the text that --help prints.
std::string export_help_text();

}  // namespace lockstep::apps
