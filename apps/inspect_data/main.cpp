#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/apps/inspect_data/data_text.h"
#include "lockstep/apps/inspect_data/inspect_data_options.h"
#include "lockstep/apps/inspect_data/inspected_data.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/reporting/progress/progress_display.h"

namespace lockstep::apps {
namespace {

Progress reading_progress(const DataReading& reading, const ConversionProgress& progress, double seconds) {
  const int64_t unit = reading.unit == "bytes" ? int64_t{1} << 20 : 1;
  return {.label = (unit == 1 ? reading.unit : "MiB") + " read",
          .step = progress.done / unit,
          .steps = (reading.total + unit - 1) / unit,
          .seconds = seconds,
          .examples = progress.rows,
          .unit = reading.unit == "bytes" ? "rows" : reading.unit};
}

/// Throws UsageError before the data are read, which may take long.
void check_page(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    throw UsageError("--html: expected a file in a folder that exists, but got '" + path + "'");
}

void inspect(const InspectDataOptions& options) {
  check_page(options.html);
  const InterruptionGuard interruption;
  ConversionProgress progress;
  const DataReading reading = open_inspected_data({.place = options.place,
                                                   .paths = options.paths,
                                                   .num_rows = options.num_rows,
                                                   .skips_bad = options.skips_bad},
                                                  progress);
  DisplayOptions display_options = display_of_stderr();
  display_options.is_silent = options.is_quiet;
  ProgressDisplay display(std::cerr, display_options);
  const auto begin = std::chrono::steady_clock::now();
  const auto show = [&] {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (display.is_due()) display.show(reading_progress(reading, progress, seconds.count()));
  };
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const bool is_complete =
      run_streams(reading.streams, {.threads = options.threads > 0 ? options.threads : cores,
                                    .on_wait = show,
                                    .is_cancelled = [&] { return interruption.signal() != 0; }});
  display.clear();
  if (!is_complete) {
    log_line("inspect_data", stopped_text(interruption.signal()));
    throw Stopped{interruption.signal()};
  }
  if (!options.html.empty()) replace_file(options.html, data_html(*reading.summary));
  print(options.is_json ? data_json(*reading.summary) : data_text(*reading.summary));
}

int run_inspect_data(const std::string& program, const std::vector<std::string>& arguments) {
  const InspectDataCommandLine line = parse_inspect_data_arguments(arguments);
  switch (line.action) {
    case InspectDataCommandLine::Action::kHelp:
      print(inspect_data_help_text(program));
      break;
    case InspectDataCommandLine::Action::kVersion:
      print("inspect_data " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      break;
    case InspectDataCommandLine::Action::kInspect:
      inspect(line.options);
      break;
  }
  if (!std::cout.flush()) throw std::runtime_error("cannot write to standard output");
  return 0;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("inspect_data", argc, argv, lockstep::apps::run_inspect_data);
}
