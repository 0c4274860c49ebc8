#include <signal.h>

#include <fstream>
#include <iostream>
#include <stdexcept>

#include "lockstep/benchmarks/allocator.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/benchmarks/scaling/measurement.h"
#include "lockstep/benchmarks/scaling/scaling_options.h"
#include "lockstep/benchmarks/scaling/scaling_report.h"
#include "lockstep/benchmarks/scaling/scaling_serve.h"
#include "lockstep/measurement/machine.h"

namespace lockstep::benchmarks {
namespace {

using measurement::describe_machine;
using measurement::today;

void run_scaling(const ScalingOptions& options) {
  // Writing to a dead job then fails with an error instead of ending this process.
  signal(SIGPIPE, SIG_IGN);
  std::cout << today() << ", " << describe_machine() << "; " << describe_allocator() << ".\n"
            << "MobileNetV2 on the CPU, " << options.image_size << 'x' << options.image_size
            << " pixels, float32, " << options.batch_size << " images a worker; " << options.num_rounds
            << " rounds of " << options.steps << " steps.\n\n";
  const ScalingReport report(options, measure_scaling(options));
  std::cout << report;
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << report.json() << std::endl;
  if (!file) throw std::runtime_error("--json: cannot write " + options.json);
}

int run(int argc, char** argv) {
  const auto options = parse_scaling_options(argc, argv);
  if (!options) return 0;
  if (options->serve.empty()) {
    run_scaling(*options);
  } else {
    serve_scaling_job(*options);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
