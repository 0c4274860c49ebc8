// Trains random models in random layouts for a few steps each, and prints the memory that was planned for
// them from a record of one step beside the most that LibTorch's allocator counted, as a table in Markdown.
// The exit code is 1 if a plan is off by more than 5 %.

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/benchmarks/planning/planned_processes.h"
#include "lockstep/benchmarks/planning/planned_training.h"
#include "lockstep/benchmarks/planning/planning_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kLargestError = 0.05;

std::string megabytes(int64_t bytes) {
  return bytes == 0 ? "-" : measurement::fixed(static_cast<double>(bytes) / 1e6, 1);
}

double error_of(int64_t planned, int64_t measured) {
  return static_cast<double>(planned) / static_cast<double>(measured) - 1;
}

/// A training's plans and measured bytes, of each rank along the axis of stages.
struct ComparedTraining {
  std::vector<MemoryPlan> plans;
  std::vector<int64_t> measured;

  /// Returns the rank whose plan is off most.
  size_t worst() const {
    size_t worst = 0;
    for (size_t i = 1; i < plans.size(); ++i) {
      if (std::abs(error(i)) > std::abs(error(worst))) worst = i;
    }
    return worst;
  }
  double error(size_t rank) const { return error_of(plans[rank].peak(), measured[rank]); }
};

ComparedTraining compare(int64_t number) {
  const auto training = random_training(static_cast<uint64_t>(number));
  torch::manual_seed(1);
  const auto record = record_of(training);
  ComparedTraining compared{.plans = plan_memory_of_ranks(record, layout_of(training, record)),
                            .measured = {}};
  compared.measured = training.uses_processes ? std::vector{mean_of_workers(number, training.layout.replicas)}
                                              : measured_peaks(training);
  return compared;
}

/// Runs a worker of mean_of_workers().
int measure_as_worker(int64_t number) {
  torch::manual_seed(1);
  std::cout << measured_peaks(random_training(static_cast<uint64_t>(number))).front() << std::endl;
  return 0;
}

int run(int argc, char** argv) {
  const PlanningOptions options = parse_planning(argc, argv);
  measurement::count_cpu_tensors();
  if (options.worker_of) return measure_as_worker(*options.worker_of);
  measurement::MarkdownTable table({"training", "parameters", "gradients", "state", "activations",
                                    "buckets, units, messages", "planned", "measured", "error %"});
  double worst = 0, sum = 0, least = 0;
  int64_t num_off = 0;
  for (int64_t i = 0; i < options.trainings; ++i) {
    const auto text = text_of(random_training(static_cast<uint64_t>(options.first + i)));
    std::cerr << "==> " << options.first + i << ": " << text << std::flush;
    const auto compared = compare(options.first + i);
    const size_t rank = compared.worst();
    const auto& plan = compared.plans[rank];
    const double error = compared.error(rank);
    worst = std::max(worst, std::abs(error));
    least = std::min(least, error);
    sum += std::abs(error);
    if (std::abs(error) > kLargestError) ++num_off;
    const std::string place = compared.plans.size() > 1 ? c10::str("; rank ", rank) : "";
    table.add_row({text + place, megabytes(plan.parameters + plan.buffers), megabytes(plan.gradients),
                   megabytes(plan.optimizer_state), megabytes(plan.activations + plan.inputs),
                   megabytes(plan.buckets + plan.gathered_units + plan.communication), megabytes(plan.peak()),
                   megabytes(compared.measured[rank]), measurement::fixed(100 * error, 1)});
    std::cerr << place << ": " << measurement::fixed(100 * error, 1) << " %" << std::endl;
  }
  std::cout << "MB (10^6 bytes) of each rank; of stages, the rank that is off most\n\n"
            << table << "\n"
            << options.trainings << " trainings; mean error "
            << measurement::fixed(100 * sum / static_cast<double>(options.trainings), 2) << " %, largest "
            << measurement::fixed(100 * worst, 2) << " %, lowest " << measurement::fixed(100 * least, 2)
            << " %, " << num_off << " above " << measurement::fixed(100 * kLargestError, 0) << " %\n";
  return num_off > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
