#include <torch/version.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/apps/export_weights/command_line.h"
#include "lockstep/apps/export_weights/gpt_folder.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/training/checkpoints/weights_file.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

void refuse_existing(const std::string& path) {
  // A dangling link also counts as an existing file.
  if (fs::exists(fs::symlink_status(path)))
    throw UsageError(path + ": expected no such file yet, but it is there; --force replaces it");
}

/// Throws UsageError if files would be replaced without --force, or if the folder of --model is a file.
void check_output(const ExportCommandLine& line) {
  if (!line.model.empty() && fs::exists(line.out) && !fs::is_directory(line.out))
    throw UsageError(line.out + ": expected a folder, as --model writes two files, but it is a file");
  if (line.replaces) return;
  if (line.model.empty()) return refuse_existing(line.out);
  for (const char* name : {"config.json", "model.safetensors"})
    refuse_existing((fs::path(line.out) / name).string());
}

void export_weights(const ExportCommandLine& line) {
  check_output(line);
  NamedTensors weights = load_weights(line.in);
  if (line.model.empty()) {
    save_weights(line.out, weights);
  } else {
    weights = write_gpt_folder(line.out, line.model, weights, line.in);
  }
  size_t num_bytes = 0;
  for (const auto& [name, tensor] : weights) num_bytes += tensor.nbytes();
  print(line.out + ": " + std::to_string(weights.size()) + " tensors, " + std::to_string(num_bytes) +
        " bytes\n");
}

int run_action(const std::string& /*program*/, const std::vector<std::string>& arguments) {
  const ExportCommandLine line = parse_export_command_line(arguments);
  switch (line.action) {
    case ExportAction::kHelp:
      print(export_help_text());
      break;
    case ExportAction::kVersion:
      print("export_weights " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      break;
    case ExportAction::kExport:
      export_weights(line);
      break;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("export_weights", argc, argv, lockstep::apps::run_action);
}
