#include "lockstep/benchmarks/scaling/scaling_serve.h"

#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/local_cluster.h"
#include "lockstep/benchmarks/loops/workers_loop.h"
#include "lockstep/benchmarks/scaling/compute_loop.h"
#include "lockstep/benchmarks/scaling/exchange_loop.h"

namespace lockstep::benchmarks {
namespace {

/// Answers each request with the text that `respond` writes.
void respond_until_the_end(const std::function<void(std::istream& request, std::ostream& answer)>& respond) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream request(line);
    std::ostringstream answer;
    answer.precision(12);
    respond(request, answer);
    std::cout << answer.str() << std::endl;
  }
}

StrategyLoopOptions loop_options(const ScalingOptions& options) {
  return {.num_replicas = options.num_processes,
          .bucket_bytes = options.bucket_bytes,
          .gradient_compression = options.job_compression,
          .overlaps = options.job_overlaps};
}

void serve_training(const ScalingOptions& options) {
  const Workload workload = options.workload(options.job_batch_size);
  const auto loop = options.serve == "workers" ? make_workers_loop(workload, loop_options(options))
                                               : make_worker_loop(workload, loop_options(options));
  loop->run(1);
  std::cout << "ready" << std::endl;
  respond_until_the_end([&](std::istream& request, std::ostream& answer) {
    int steps = 0;
    request >> steps;
    answer << loop->seconds_for(steps);
  });
}

void serve_compute(const ScalingOptions& options) {
  ComputeLoopOptions loop_options{.num_processes = options.num_processes,
                                  .most_examples = options.job_batch_size / options.num_processes};
  loop_options.buckets = options.buckets();
  ComputeLoop loop(options.workload(options.job_batch_size), loop_options);
  std::cout << "ready " << loop.num_parameters() << ' ' << loop.num_tensors() << std::endl;
  respond_until_the_end([&](std::istream& request, std::ostream& answer) {
    int steps = 0;
    int64_t num_examples = 0;
    request >> steps >> num_examples;
    const auto [mean, step_seconds, copy_seconds] = loop.run(steps, num_examples);
    answer << mean.forward_seconds << ' ' << mean.backward_seconds << ' ' << mean.optimizer_seconds << ' '
           << copy_seconds;
    for (const double seconds : step_seconds) answer << ' ' << seconds;
    for (const auto& gradient : mean.gradients)
      answer << ' ' << gradient.bytes << ' ' << gradient.ready_seconds;
  });
}

void serve_exchange(const ScalingOptions& options) {
  LocalCluster cluster;
  const bool is_first = options.serve == "exchanges";
  if (is_first) {
    Command job = own_job("exchange", options.workload(options.job_batch_size), options.num_processes);
    job.arguments.insert(job.arguments.end(), {"--gradient-compression", options.job_compression,
                                               "--exchange-algorithm", options.job_algorithm});
    if (options.job_uses_tcp) job.arguments.emplace_back("--tcp");
    cluster = start_local_cluster(job, options.num_processes);
  } else {
    cluster.resolver = cluster_of_job();
  }
  ExchangeLoop loop(*cluster.resolver, cluster.options,
                    {.compression = options.job_compression,
                     .algorithm = options.job_algorithm,
                     .uses_tcp = options.job_uses_tcp});
  cluster.read_lines();
  std::cout << "ready" << std::endl;
  respond_until_the_end([&](std::istream& request, std::ostream& answer) {
    std::string word;
    request >> word;
    int repetitions = 0;
    if (word == "convert") {
      int64_t bytes = 0;
      request >> bytes >> repetitions;
      answer << loop.conversion_seconds(bytes, repetitions);
      return;
    }
    request >> repetitions;
    cluster.write_line(word + ' ' + std::to_string(repetitions));
    const auto sample = loop.run(std::stoll(word), repetitions);
    cluster.read_lines();
    answer << sample.seconds << ' ' << sample.cpu_seconds;
  });
  cluster.close_inputs();
}

}  // namespace

void serve_scaling_job(const ScalingOptions& options) {
  if (options.serve == "compute") return serve_compute(options);
  if (options.serve == "exchange" || options.serve == "exchanges") return serve_exchange(options);
  if (options.serve == "worker" || options.serve == "workers") return serve_training(options);
  throw std::invalid_argument("--serve: expected compute, exchange, exchanges, worker or workers, but got '" +
                              options.serve + "'");
}

}  // namespace lockstep::benchmarks
