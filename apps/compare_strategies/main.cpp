#include <torch/version.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "lockstep/apps/command_line/failure.h"
#include "lockstep/apps/compare_strategies/compare.h"
#include "lockstep/apps/compare_strategies/comparison_page.h"
#include "lockstep/apps/compare_strategies/measured_training.h"
#include "lockstep/apps/compare_strategies/result_folder.h"
#include "lockstep/apps/compare_strategies/trial.h"
#include "lockstep/strategies/make_strategy.h"
#include "lockstep/training/interruption.h"

namespace lockstep::apps {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), path + ": cannot be written");
}

int compare_and_report(const CompareOptions& options, const std::vector<std::string>& arguments) {
  const InterruptionGuard interruption;
  std::error_code ignored;
  const bool is_users_folder = !options.out.empty() && std::filesystem::exists(options.out, ignored);
  const std::string folder = make_result_folder(options.out);
  try {
    const auto report = compare({.options = options,
                                 .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                                 .arguments = arguments,
                                 .version = LOCKSTEP_VERSION,
                                 .is_cancelled = [&] { return interruption.signal() != 0; }},
                                std::cerr);
    write_file(folder + "/comparison.json", comparison_json(report));
    write_file(folder + "/report.html", comparison_page(report));
    std::cout << work_text(report) << "\n\n"
              << comparison_text(report) << "\nSee " << folder << "/report.html" << std::endl;
    return exit_code_of(report);
  } catch (const TrialCancelled&) {
    if (!is_users_folder) std::filesystem::remove(folder, ignored);  // it is empty
    const bool is_interrupt = interruption.signal() == SIGINT;
    std::cerr << "compare_strategies: stopped by " << (is_interrupt ? "SIGINT" : "SIGTERM") << std::endl;
    return static_cast<int>(is_interrupt ? ExitCode::kInterrupted : ExitCode::kTerminated);
  }
}

int run_program(const std::vector<std::string>& arguments) {
  const auto line = parse_compare_command_line(arguments, strategy_names());
  switch (line.action) {
    case CompareAction::kHelp:
      std::cout << compare_help_text(strategy_names()) << std::flush;
      return 0;
    case CompareAction::kVersion:
      std::cout << "compare_strategies " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION << std::endl;
      return 0;
    case CompareAction::kCompare:
      break;
  }
  if (line.options.measuring.strategy < 0) return compare_and_report(line.options, arguments);
  measure_training(line.options);
  return 0;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  try {
    return lockstep::apps::run_program({argv + 1, argv + argc});
  } catch (...) {
    const auto failure = lockstep::apps::describe_failure(std::current_exception());
    std::cerr << "compare_strategies: error: " << failure.message << std::endl;
    return failure.exit_code;
  }
}
