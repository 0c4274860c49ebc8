#include <signal.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "lockstep/benchmarks/allocator.h"
#include "lockstep/benchmarks/benchmark_options.h"
#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/machine.h"
#include "lockstep/benchmarks/serve.h"

namespace lockstep::benchmarks {
namespace {

void print_setting(const BenchmarkOptions& options) {
  std::cout << today() << ", " << describe_machine() << "; " << describe_allocator() << ".\n"
            << "MobileNetV2 on " << (options.workload.gpu.empty() ? "the CPU" : options.workload.gpu) << ", "
            << options.workload.image_size << 'x' << options.workload.image_size << " pixels, "
            << (options.workload.bfloat16 ? "bfloat16 by autocast" : "float32") << ", global batch "
            << options.workload.global_batch_size << "; " << options.num_pairs << " alternating pairs of "
            << options.steps << " steps a ratio.\n\n";
}

void measure(const BenchmarkOptions& options, Report& report) {
  const auto wanted = [&](const char* part, const std::string* python = nullptr) {
    if (!options.parts.contains(part)) return false;
    const bool available = python == nullptr || !python->empty();
    std::cerr << "==> " << part << (available ? "" : ": left out, its peer's Python is not given") << '\n';
    return available;
  };
  if (wanted("bare")) compare_with_bare_loop(options, report);
  if (wanted("bare_process")) compare_with_bare_process(options, report);
  if (wanted("independent")) compare_with_independent_loops(options, report);
  if (wanted("torch", &options.torch_python)) compare_with_torch(options, false, report);
  if (wanted("torch_tuned", &options.torch_python)) compare_with_torch(options, true, report);
  if (wanted("tensorflow", &options.tensorflow_python)) compare_with_tensorflow(options, report);
  if (wanted("bucket_caps")) compare_bucket_caps(options, report);
  if (wanted("logical")) compare_with_one_replica(options, report);
  if (wanted("images")) compare_images_with_one_batch(options, report);
  if (wanted("memory")) compare_memory(options, report);
  if (wanted("start")) measure_starts(options, report);
}

void write_json(const BenchmarkOptions& options, const Report& report) {
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << report.json() << std::endl;
  if (!file) throw std::runtime_error("--json: cannot write " + options.json);
}

int run(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return 0;
  if (!options->serve.empty()) {
    serve(*options);
    return 0;
  }
  // A peer that has died is an error of the write to it, not the end of this process.
  signal(SIGPIPE, SIG_IGN);
  print_setting(*options);
  Report report;
  try {
    measure(*options, report);
  } catch (...) {
    std::cout << report;
    write_json(*options, report);
    throw;
  }
  std::cout << report;
  write_json(*options, report);
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  try {
    return lockstep::benchmarks::run(argc, argv);
  } catch (const std::runtime_error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  } catch (const std::exception& error) {  // a flag's
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  }
}
