#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/apps/compare_strategies/compare.h"
#include "lockstep/apps/compare_strategies/report/comparison_backup.h"
#include "lockstep/apps/compare_strategies/report/comparison_page.h"
#include "lockstep/apps/compare_strategies/report/result_folder.h"
#include "lockstep/apps/compare_strategies/trials/measured_training.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"
#include "lockstep/apps/shared/command_line/resume_command.h"
#include "lockstep/apps/shared/openmp_waits.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/apps/shared/writable_folder.h"
#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/strategies/make_strategy.h"
#include "lockstep/training/callbacks/interruption.h"

namespace lockstep::apps {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), path + ": cannot be written");
}

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

/// Returns the places of a work that reads files or draws its data.
template <typename Work>
std::string places_of(const Work& work) {
  if (is_generated(work)) return work.data.front();
  std::string places;
  for (const auto& place : work.data) places += (places.empty() ? "" : ",") + absolute_path(place);
  return places;
}

std::string place_of_data(const ComparedWork& work) {
  if (const auto* clicks = std::get_if<CtrOptions>(&work)) return places_of(*clicks);
  if (const auto* tokens = std::get_if<GptTrainOptions>(&work)) {
    std::string places = places_of(*tokens);
    if (!tokens->init_weights.empty()) places += ", weights of " + absolute_path(tokens->init_weights);
    return places;
  }
  const DataLocation data = locate_data(std::get<TrainOptions>(work).data);
  return data.path.empty() ? data.why : absolute_path(data.path);
}

/// Facts about the work and the machine that the flags do not state.
std::vector<std::pair<std::string, std::string>> facts_of(const CompareOptions& options) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  const auto type = accelerator().value_or(c10::DeviceType::CUDA);
  return {{"Lockstep", LOCKSTEP_VERSION},
          {"LibTorch", TORCH_VERSION},
          {"host", host.data()},
          {"machine", measurement::describe_machine()},
          {device_type_noun(type) + "s", std::to_string(num_devices(type))},
          {examples_of(options.work), place_of_data(options.work)}};
}

int compare_and_report(const CompareOptions& options, const std::vector<std::string>& arguments) {
  const InterruptionGuard interruption;
  std::error_code ignored;
  const bool is_users_folder = !options.out.empty() && std::filesystem::exists(options.out, ignored);
  const auto log = [](const std::string& text) { log_line("compare_strategies", text); };
  CompareRequest request{.options = options,
                         .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                         .arguments = arguments,
                         .version = LOCKSTEP_VERSION,
                         .is_cancelled = [&] { return interruption.signal() != 0; }};
  std::optional<ComparisonBackup> backup;
  if (!options.backup_dir.empty()) {
    require_writable_folder("--backup-dir", options.backup_dir);
    backup.emplace(options, comparison_identity(options, facts_of(options)), log);
    request.find_result = [&](int64_t round, int strategy) { return backup->find(round, strategy); };
    request.on_result = [&](int64_t round, int strategy, const TrialResult& result) {
      backup->keep(round, strategy, result);
    };
    if (backup->num_found() > 0 && !options.quiet)
      log(std::to_string(backup->num_found()) + " measurements are there already");
  }
  const std::string folder = make_result_folder(options.out);
  try {
    const auto report = compare(request, std::cerr);
    write_file(folder + "/comparison.json", comparison_json(report));
    write_file(folder + "/report.html", comparison_page(report));
    print(work_text(report) + "\n\n" + comparison_text(report) + "\nSee " + folder + "/report.html\n");
    return exit_code_of(report);
  } catch (const TrialCancelled&) {
    if (!is_users_folder) std::filesystem::remove(folder, ignored);  // it is empty
    const int signal = interruption.signal();
    log(stopped_text(signal));
    if (backup)
      log("measurements are in " + options.backup_dir +
          "; to resume, run: " + resume_command(request.program, arguments));
    throw Stopped{.signal = signal};
  }
}

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  const auto strategies = strategy_names();
  const auto line = parse_compare_command_line(arguments, strategies);
  switch (line.action) {
    case CompareAction::kHelp:
      print(compare_help_text(strategies, program));
      return 0;
    case CompareAction::kVersion:
      print("compare_strategies " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
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
  lockstep::apps::let_openmp_threads_sleep(argv);
  return lockstep::apps::run_torch_program("compare_strategies", argc, argv, lockstep::apps::run_action);
}
