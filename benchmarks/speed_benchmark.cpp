#include <fmt/format.h>
#include <signal.h>

#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/allocator.h"
#include "lockstep/benchmarks/benchmark_options.h"
#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/benchmarks/serve.h"
#include "lockstep/measurement/machine.h"

namespace lockstep::benchmarks {
namespace {

using measurement::describe_machine;
using measurement::today;

void print_setting(const BenchmarkOptions& options) {
  const Workload& workload = options.workload;
  const std::string work = workload.model == BenchmarkModel::kGpt
                               ? fmt::format("A GPT of {} layers of width {}, sequences of {},",
                                             workload.num_layers, workload.width, workload.sequence_length)
                               : fmt::format("MobileNetV2, {0}x{0} pixels,", workload.image_size);
  std::cout << today() << ", " << describe_machine() << "; " << describe_allocator() << ".\n"
            << work << " on " << (options.workload.gpus.empty() ? "the CPU" : options.workload.gpu_list())
            << ", " << (options.workload.bfloat16 ? "bfloat16 by autocast" : "float32") << ", global batch "
            << options.workload.global_batch_size << "; " << options.num_pairs << " alternating pairs of "
            << options.steps << " steps a ratio.\n\n";
}

void write_json(const BenchmarkOptions& options, const Report& report) {
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << report.json() << std::endl;
  if (!file) throw std::runtime_error("--json: cannot write " + options.json);
}

/// A part of the benchmark, and the option that it needs, if any.
struct Part {
  const char* name;
  std::function<void(const BenchmarkOptions&, Report&)> measure;
  std::string BenchmarkOptions::*needs = nullptr;
  const char* without = "";
};

/// Returns the error of the first part that failed, or null. The other parts are still measured.
std::exception_ptr measure(const BenchmarkOptions& options, Report& report) {
  const auto with_torch = [](TorchPeer peer) {
    return [=](const auto& options, auto& report) { compare_with_torch(options, peer, report); };
  };
  const std::vector<Part> parts{
      {"bare", compare_with_bare_loop},
      {"bare_process", compare_with_bare_process},
      {"independent", compare_with_independent_loops},
      {"torch", with_torch(TorchPeer::kAsInstalled), &BenchmarkOptions::torch_python,
       "no --peer-torch-python"},
      {"torch_tuned", with_torch(TorchPeer::kSameAllocator), &BenchmarkOptions::torch_python,
       "no --peer-torch-python"},
      {"torch_compiled", with_torch(TorchPeer::kCompiled), &BenchmarkOptions::torch_python,
       "no --peer-torch-python"},
      {"torch_compiled_process", with_torch(TorchPeer::kCompiledProcess), &BenchmarkOptions::torch_python,
       "no --peer-torch-python"},
      {"tensorflow", compare_with_tensorflow, &BenchmarkOptions::tensorflow_python, "no --peer-tf-python"},
      {"bucket_caps", compare_bucket_caps},
      {"logical", compare_with_one_replica},
      {"images", compare_images_with_one_batch, &BenchmarkOptions::images, "no --images"},
      {"ops", compare_cross_device_ops},
      {"memory", compare_memory},
      {"sharding", compare_sharding},
      {"tensor", compare_tensor},
      {"pipeline", compare_pipelines},
      {"recompute", compare_recomputation},
      {"start", measure_starts},
      {"workers", compare_workers},
      // Last, since the profiler slows down all later parts.
      {"profile", profile_device}};
  std::exception_ptr failure;
  write_json(options, report);
  for (const auto& part : parts) {
    if (!options.parts.contains(part.name)) continue;
    std::cerr << "==> " << part.name << '\n';
    if (part.needs != nullptr && (options.*part.needs).empty()) {
      report.add_not_measured(part.name, part.without);
    } else {
      try {
        part.measure(options, report);
      } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << '\n';
        report.add_not_measured(part.name, std::string("it failed: ") + error.what());
        if (!failure) failure = std::current_exception();
      }
    }
    // Keeps the results so far, even if a later part never ends.
    write_json(options, report);
  }
  return failure;
}

int run(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return 0;
  if (!options->serve.empty()) {
    serve(*options);
    return 0;
  }
  // Writing to a dead peer then fails with an error instead of ending this process.
  signal(SIGPIPE, SIG_IGN);
  print_setting(*options);
  Report report;
  const auto failure = measure(*options, report);
  std::cout << report;
  if (failure) std::rethrow_exception(failure);
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
