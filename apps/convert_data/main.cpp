#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/apps/convert_data/conversion_plan.h"
#include "lockstep/apps/convert_data/convert_options.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/reporting/progress/progress_display.h"

namespace lockstep::apps {
namespace {

constexpr const char* kProgram = "convert_data";

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Progress progress_of(const ConversionPlan& plan, const ConversionProgress& progress, double seconds) {
  const int64_t unit = plan.counted_in == "MiB" ? int64_t{1} << 20 : 1;
  return {.label = plan.counted_in == "MiB" ? "MiB converted" : "images converted",
          .step = progress.done / unit,
          .steps = (plan.total + unit - 1) / unit,
          .seconds = seconds,
          .examples = progress.rows,
          .unit = plan.rows_noun};
}

/// Tells what was left out or changed.
void report_notes(const ConversionPlan& plan) {
  ClickNotes notes;
  for (const ClickNotes& each : plan.notes) notes.add(each);
  if (notes.num_malformed > 0)
    log_line(kProgram, "left out " + grouped_number(notes.num_malformed) +
                           " malformed rows; the first: " + notes.first_malformed);
  if (notes.num_respelled > 0)
    log_line(kProgram,
             "the way back spells " + grouped_number(notes.num_respelled) +
                 " rows differently, as they have leading zeros, upper-case digits, \"\\r\\n\" or no "
                 "line break at the end; the first: " +
                 notes.first_respelled);
  if (const std::string ignored = plan.ignored.describe(); !ignored.empty())
    log_line(kProgram, "left out files that are no images of a class: " + ignored);
}

std::string counted(size_t count, const std::string& noun) {
  return grouped_number(static_cast<int64_t>(count)) + " " + noun + (count == 1 ? "" : "s");
}

void convert(const ConvertOptions& options) {
  const InterruptionGuard interruption;
  ConversionProgress progress;
  ConversionPlan plan = plan_conversion(options, progress);
  DisplayOptions display_options = display_of_stderr();
  display_options.is_silent = options.is_quiet;
  ProgressDisplay display(std::cerr, display_options);
  const auto begin = std::chrono::steady_clock::now();
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const bool is_complete =
      run_streams(plan.streams, {.threads = options.threads > 0 ? options.threads : cores,
                                 .on_wait =
                                     [&] {
                                       if (display.is_due())
                                         display.show(progress_of(plan, progress, seconds_since(begin)));
                                     },
                                 .is_cancelled = [&] { return interruption.signal() != 0; }});
  display.clear();
  if (!is_complete) {
    log_line(kProgram, stopped_text(interruption.signal()) + "; nothing of " + options.out + " was kept");
    throw Stopped{interruption.signal()};
  }
  plan.out->commit();
  report_notes(plan);
  const int64_t rows = progress.rows;
  const double seconds = seconds_since(begin);
  print(options.out + ": " + grouped_number(rows) + " " + plan.rows_noun + " of " +
        counted(plan.num_inputs, plan.kind == ConversionKind::kImagesToParquet ? "folder" : "file") + " in " +
        seconds_text(seconds) + "\n");
}

int run_convert(const std::string& program, const std::vector<std::string>& arguments) {
  const ConvertCommandLine line = parse_convert_arguments(arguments);
  switch (line.action) {
    case ConvertCommandLine::Action::kHelp:
      print(convert_help_text(program));
      break;
    case ConvertCommandLine::Action::kVersion:
      print("convert_data " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      break;
    case ConvertCommandLine::Action::kConvert:
      convert(line.options);
      break;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("convert_data", argc, argv, lockstep::apps::run_convert);
}
