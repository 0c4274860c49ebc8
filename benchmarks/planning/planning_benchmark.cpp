// Trains random models in random layouts for a few steps each, and prints the memory that was planned for
// them from a record of one step beside the most that LibTorch's allocator counted, as a table in Markdown.
// The exit code is 1 if a plan is off by more than 5 %.

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "lockstep/benchmarks/planning/planned_training.h"
#include "lockstep/benchmarks/planning/planning_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kLargestError = 0.05;

std::string fixed(double value, int digits) {
  constexpr size_t kLongest = 32;
  std::string text(kLongest, '\0');
  text.resize(static_cast<size_t>(std::snprintf(text.data(), kLongest, "%.*f", digits, value)));
  return text;
}

std::string megabytes(int64_t bytes) {
  return bytes == 0 ? "-" : fixed(static_cast<double>(bytes) / 1e6, 1);
}

int run(int argc, char** argv) {
  const PlanningOptions options = parse_planning(argc, argv);
  measurement::count_cpu_tensors();
  measurement::MarkdownTable table({"training", "parameters", "gradients", "state", "activations",
                                    "buckets, units, sums", "planned", "measured", "error %"});
  double worst = 0, sum = 0;
  int64_t num_off = 0;
  for (int64_t i = 0; i < options.trainings; ++i) {
    const auto training = random_training(static_cast<uint64_t>(options.first + i));
    torch::manual_seed(1);
    const auto record = record_of(training);
    const MemoryPlan plan = plan_memory(record, layout_of(training, record));
    const int64_t measured = measured_peak(training);
    const double error = static_cast<double>(plan.peak()) / static_cast<double>(measured) - 1;
    worst = std::max(worst, std::abs(error));
    sum += std::abs(error);
    if (std::abs(error) > kLargestError) ++num_off;
    table.add_row({text_of(training), megabytes(plan.parameters + plan.buffers), megabytes(plan.gradients),
                   megabytes(plan.optimizer_state), megabytes(plan.activations + plan.inputs),
                   megabytes(plan.buckets + plan.gathered_units + plan.communication), megabytes(plan.peak()),
                   megabytes(measured), fixed(100 * error, 1)});
    std::cerr << "==> " << options.first + i << ": " << text_of(training) << ": " << fixed(100 * error, 1)
              << " %" << std::endl;
  }
  std::cout << "MB (10^6 bytes) of each replica\n\n"
            << table << "\n"
            << options.trainings << " trainings; mean error "
            << fixed(100 * sum / static_cast<double>(options.trainings), 2) << " %, largest "
            << fixed(100 * worst, 2) << " %, " << num_off << " above " << fixed(100 * kLargestError, 0)
            << " %\n";
  return num_off > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
