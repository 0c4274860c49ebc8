#include "lockstep/benchmarks/serve.h"

#include <iomanip>
#include <iostream>
#include <stdexcept>

#include "lockstep/benchmarks/loops/strategy_loop.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/benchmarks/loops/workers_loop.h"
#include "lockstep/measurement/machine.h"

namespace lockstep::benchmarks {
namespace {

using measurement::peak_memory_bytes;

std::unique_ptr<TrainingLoop> make_loop(const BenchmarkOptions& options) {
  if (options.serve == "bare") return make_bare_loop(options.workload);
  const StrategyLoopOptions of_strategy{.num_replicas = options.num_replicas,
                                        .tensor = options.tensor,
                                        .pipeline = options.pipeline,
                                        .sharding = options.sharding};
  if (options.serve == "mirrored") return make_strategy_loop(options.workload, of_strategy);
  if (options.serve == "independent") return make_independent_loops(options.workload, options.num_replicas);
  if (options.serve == "workers") return make_workers_loop(options.workload, of_strategy);
  if (options.serve == "worker") return make_worker_loop(options.workload, of_strategy);
  throw std::invalid_argument("--serve: expected bare, mirrored, independent, workers or worker, but got '" +
                              options.serve + "'");
}

}  // namespace

void serve(const BenchmarkOptions& options) {
  const auto loop = make_loop(options);
  loop->run(1);
  std::cout << "ready " << loop->num_parameters() << std::endl;
  for (std::string request; std::getline(std::cin, request);) {
    if (request == "peak_memory") {
      std::cout << peak_memory_bytes() << std::endl;
    } else if (request == "loss") {
      std::cout << std::setprecision(9) << loop->last_loss() << std::endl;
    } else {
      std::cout << loop->seconds_for(std::stoi(request)) << std::endl;
    }
  }
}

}  // namespace lockstep::benchmarks
