#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/apps/inspect_run/command_line.h"
#include "lockstep/apps/inspect_run/run_summary.h"
#include "lockstep/apps/inspect_run/summary_text.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/exit_code.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/program.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

ExitCode run_inspection(const std::string& program, const std::vector<std::string>& arguments) {
  const auto [action, options] = parse_inspect_arguments(arguments);
  switch (action) {
    case InspectCommandLine::Action::kHelp:
      print(inspect_help_text(program));
      return ExitCode::kOk;
    case InspectCommandLine::Action::kVersion:
      print("inspect_run " LOCKSTEP_VERSION "\n");
      return ExitCode::kOk;
    case InspectCommandLine::Action::kInspect:
      break;
  }
  // JSON has every epoch, so they are read once more while it is written.
  const size_t num_kept = options.is_json ? 0 : static_cast<size_t>(options.num_epochs);
  const RunSummary summary = summarise_run(options.folder, num_kept);
  if (options.is_json) {
    write_summary_json(std::cout, summary, [&, &folder = options.folder](const auto& act) {
      for_each_epoch(folder, summary.epochs.count(), act);
    });
  } else {
    print(summary_text(summary));
  }
  return summary.damages.empty() ? ExitCode::kOk : ExitCode::kData;
}

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  const ExitCode code = run_inspection(program, arguments);
  if (!std::cout.flush()) throw std::runtime_error("cannot write to standard output");
  return static_cast<int>(code);
}

/// Replaces describe_failure(), which needs LibTorch.
Failure describe_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& usage) {
    return {static_cast<int>(ExitCode::kUsage), usage.what()};
  } catch (const RunDirectoryError& directory) {
    return {static_cast<int>(ExitCode::kCheckpoint), directory.what()};
  } catch (const std::exception& other) {
    return {1, other.what()};
  }
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_program(
      {.name = "inspect_run", .describe_error = lockstep::apps::describe_error}, argc, argv,
      lockstep::apps::run_action);
}
