#include "lockstep/apps/export_weights/command_line.h"

#include <fmt/format.h>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

void check_ending(const ExportCommandLine& line) {
  bool is_of_a_file = false;
  for (const char* ending : {".safetensors", ".pt", ".pth"})
    is_of_a_file = is_of_a_file || line.out.ends_with(ending);
  if (line.model.empty() && !is_of_a_file)
    throw UsageError(
        fmt::format("OUT: expected a name that ends in .safetensors, .pt or .pth, but got '{}'", line.out));
  if (!line.model.empty() && is_of_a_file)
    throw UsageError(
        fmt::format("OUT: expected a folder, as --model writes two files, but got '{}'", line.out));
}

void set_model(const std::string& path, ExportCommandLine& line) {
  if (path.empty()) throw UsageError("--model: expected a model.json, but got ''");
  line.model = path;
}

}  // namespace

ExportCommandLine parse_export_command_line(const std::vector<std::string>& arguments) {
  ExportCommandLine line;
  std::vector<std::string> files;
  bool only_files = false;   // after --
  bool is_of_model = false;  // after --model
  for (const auto& argument : arguments) {
    if (is_of_model) {
      set_model(argument, line);
      is_of_model = false;
    } else if (only_files || argument.empty() || argument[0] != '-') {
      files.push_back(argument);
    } else if (argument == "--") {
      only_files = true;
    } else if (argument == "--force" || argument == "-f") {
      line.replaces = true;
    } else if (argument == "--model") {
      is_of_model = true;
    } else if (argument.starts_with("--model=")) {
      set_model(argument.substr(std::string("--model=").size()), line);
    } else if (argument == "--help" || argument == "-h") {
      return {.action = ExportAction::kHelp};
    } else if (argument == "--version") {
      return {.action = ExportAction::kVersion};
    } else {
      throw UsageError(fmt::format("{}: expected a flag of this program{}; --help lists them", argument,
                                   did_you_mean(argument, {"--force", "--help", "--model", "--version"})));
    }
  }
  if (is_of_model) throw UsageError("--model: expected a model.json after it, but got nothing");
  if (files.size() != 2)
    throw UsageError(
        fmt::format("expected two files, IN and OUT, but got {}; --help says more", files.size()));
  line.in = files[0];
  line.out = files[1];
  check_ending(line);
  return line;
}

std::string export_help_text() {
  return R"(Converts a file of weights to .safetensors, to .pt for torch.load() in Python, or to a folder for
AutoModelForCausalLM.from_pretrained() of Hugging Face's transformers.

Usage:
  export_weights [flags] IN OUT

IN is one of these, whatever its name:
  a .safetensors file
  a state_dict that torch.save() wrote in Python
  a training state of Lockstep, or the folder of a checkpoint
OUT must end in .safetensors, .pt or .pth. With --model, it is a folder, which gets config.json and
model.safetensors.

      --model PATH  Write a language model of train_gpt under the names of Hugging Face's GPT-2 or
                    Llama. PATH is the model.json in its run directory
  -f, --force       Replace OUT, or the two files in it, if it exists
  -h, --help        Print this help, and exit
      --version     Print the version, and exit

Examples:
  export_weights run/checkpoints/best.pt best.safetensors
  export_weights mobilenet_v2.safetensors mobilenet_v2.pt
  export_weights --model run/model.json run/checkpoints/best.pt gpt

Exit codes: 0 done, 2 usage, 4 IN or --model cannot be read or they do not fit each other,
7 OUT cannot be written
)";
}

}  // namespace lockstep::apps
