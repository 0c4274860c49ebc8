#include <exception>
#include <iostream>

#include "lockstep/apps/inspect_run/command_line.h"
#include "lockstep/apps/inspect_run/run_summary.h"
#include "lockstep/apps/inspect_run/summary_text.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

ExitCode run_inspection(const std::vector<std::string>& arguments) {
  const auto [action, options] = parse_inspect_arguments(arguments);
  switch (action) {
    case InspectCommandLine::Action::kHelp:
      std::cout << inspect_help_text();
      return ExitCode::kOk;
    case InspectCommandLine::Action::kVersion:
      std::cout << "inspect_run " LOCKSTEP_VERSION "\n";
      return ExitCode::kOk;
    case InspectCommandLine::Action::kInspect:
      break;
  }
  const RunSummary summary = summarise_run(options.folder);
  std::cout << (options.is_json ? summary_json(summary) : summary_text(summary, options.num_epochs));
  return summary.damages.empty() ? ExitCode::kOk : ExitCode::kData;
}

int fail(int exit_code, const std::exception& error) {
  std::cerr << "inspect_run: error: " << error.what() << std::endl;
  return exit_code;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  using lockstep::ExitCode;
  try {
    const auto code = lockstep::apps::run_inspection({argv + 1, argv + argc});
    if (!std::cout.flush()) throw std::runtime_error("cannot write to standard output");
    return static_cast<int>(code);
  } catch (const lockstep::apps::UsageError& error) {
    return lockstep::apps::fail(static_cast<int>(ExitCode::kUsage), error);
  } catch (const lockstep::RunDirectoryError& error) {
    return lockstep::apps::fail(static_cast<int>(ExitCode::kCheckpoint), error);
  } catch (const std::exception& error) {
    return lockstep::apps::fail(1, error);
  }
}
