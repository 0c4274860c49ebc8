#include <torch/version.h>

#include <filesystem>
#include <iostream>

#include "lockstep/apps/export_weights/command_line.h"
#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/training/checkpoints/weights_file.h"

namespace lockstep::apps {
namespace {

void export_weights(const ExportCommandLine& line) {
  // A link that leads nowhere is there, too.
  if (!line.replaces && std::filesystem::exists(std::filesystem::symlink_status(line.out)))
    throw UsageError(line.out + ": expected no such file yet, but it is there; --force replaces it");
  const NamedTensors weights = load_weights(line.in);
  save_weights(line.out, weights);
  size_t num_bytes = 0;
  for (const auto& [name, tensor] : weights) num_bytes += tensor.nbytes();
  std::cout << line.out << ": " << weights.size() << " tensors, " << num_bytes << " bytes" << std::endl;
}

void run_export(const ExportCommandLine& line) {
  switch (line.action) {
    case ExportAction::kHelp:
      std::cout << export_help_text();
      return;
    case ExportAction::kVersion:
      std::cout << "export_weights " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n";
      return;
    case ExportAction::kExport:
      export_weights(line);
  }
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  try {
    lockstep::apps::run_export(lockstep::apps::parse_export_command_line({argv + 1, argv + argc}));
    return 0;
  } catch (...) {
    const auto failure = lockstep::apps::describe_failure(std::current_exception());
    std::cerr << "export_weights: error: " << failure.message << std::endl;
    return failure.exit_code;
  }
}
