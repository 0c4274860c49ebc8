#include "lockstep/apps/export_weights/command_line.h"

#include <fmt/format.h>

#include "lockstep/apps/shared/command_line/closest_name.h"
#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

void check_ending(const std::string& out) {
  for (const char* ending : {".safetensors", ".pt", ".pth"})
    if (out.ends_with(ending)) return;
  throw UsageError(
      fmt::format("OUT: expected a name that ends in .safetensors, .pt or .pth, but got '{}'", out));
}

}  // namespace

ExportCommandLine parse_export_command_line(const std::vector<std::string>& arguments) {
  ExportCommandLine line;
  std::vector<std::string> files;
  bool only_files = false;  // after --
  for (const auto& argument : arguments) {
    if (only_files || argument.empty() || argument[0] != '-') {
      files.push_back(argument);
    } else if (argument == "--") {
      only_files = true;
    } else if (argument == "--force" || argument == "-f") {
      line.replaces = true;
    } else if (argument == "--help" || argument == "-h") {
      return {.action = ExportAction::kHelp};
    } else if (argument == "--version") {
      return {.action = ExportAction::kVersion};
    } else {
      throw UsageError(fmt::format("{}: expected a flag of this program{}; --help lists them", argument,
                                   did_you_mean(argument, {"--force", "--help", "--version"})));
    }
  }
  if (files.size() != 2)
    throw UsageError(
        fmt::format("expected two files, IN and OUT, but got {}; --help says more", files.size()));
  line.in = files[0];
  line.out = files[1];
  check_ending(line.out);
  return line;
}

std::string export_help_text() {
  return R"(Converts a file of weights to .safetensors, or to .pt for torch.load() in Python.

Usage:
  export_weights [flags] IN OUT

IN is one of these, whatever its name:
  a .safetensors file
  a state_dict that torch.save() wrote in Python
  a training state of Lockstep, or the folder of a checkpoint
OUT must end in .safetensors, .pt or .pth.

  -f, --force    Replace OUT if it exists
  -h, --help     Print this help, and exit
      --version  Print the version, and exit

Examples:
  export_weights run/checkpoints/best.pt best.safetensors
  export_weights mobilenet_v2.safetensors mobilenet_v2.pt

Exit codes: 0 done, 2 usage, 4 IN cannot be read, 7 OUT cannot be written
)";
}

}  // namespace lockstep::apps
