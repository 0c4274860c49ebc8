#include "lockstep/benchmarks/job_comparison.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/remote_training.h"

namespace lockstep::benchmarks {

namespace {

constexpr int kComparedLosses = 3;
// Adam's first steps move each weight by as much, whatever the size of its gradient, so that rounding errors
// of small ones count.
constexpr double kLossTolerance = 1e-4;

}  // namespace

WorkDone work_of(const BenchmarkOptions& options) {
  const Workload& workload = options.workload;
  const auto examples = static_cast<double>(options.steps * workload.global_batch_size);
  if (workload.model == BenchmarkModel::kGpt)
    return {examples * static_cast<double>(workload.sequence_length), "tokens/s"};
  return {examples, "images/s"};
}

void tell(const std::string& what) {
  std::cerr << "    " << what << '\n';
}

std::string replicas(int count) {
  return c10::str(count, count == 1 ? " replica" : " replicas");
}

OwnJob workers_job(const BenchmarkOptions& options, const Workload& workload) {
  return {c10::str(options.num_replicas, " workers of 1 replica"),
          own_job("workers", workload, options.num_replicas)};
}

OwnJob sharded_workers_job(const BenchmarkOptions& options, const Workload& workload, int stage) {
  OwnJob job = workers_job(options, workload);
  return {c10::str(job.title, ", sharding stage ", stage), with_sharding(std::move(job.command), stage)};
}

void check_losses(const std::string& name, int step, double other, double own) {
  tell(c10::str("loss of step ", step, ": ", own, ", of ", name, " ", other));
  if (std::abs(own - other) <= kLossTolerance * std::abs(other)) return;
  throw std::runtime_error(c10::str("[benchmark] expected the same losses on both sides, but in step ", step,
                                    " that of ", name, " is ", other, " and Lockstep's ", own));
}

void compare_own_job(const BenchmarkOptions& options, const OwnJob& own_job, const std::string& name,
                     const Command& other_job, std::optional<Bar> bar, Report& report, bool compares_losses) {
  tell("starting " + name);
  RemoteTraining other(other_job);
  tell("starting " + own_job.title);
  RemoteTraining own(own_job.command);
  if (other.num_parameters() != own.num_parameters()) {
    throw std::runtime_error(c10::str("[benchmark] expected the same model on both sides, but ", name,
                                      " trains ", other.num_parameters(), " parameters and Lockstep ",
                                      own.num_parameters()));
  }
  for (int step = 1; compares_losses && step <= kComparedLosses; ++step) {
    check_losses(name, step, other.loss(), own.loss());
    other.seconds_for(1);
    own.seconds_for(1);
  }
  report.add_speed(own_job.title, name, measure_seconds(options, other, own), work_of(options), bar);
}

Workload torch_workload(const BenchmarkOptions& options) {
  Workload workload = options.workload;
  workload.dense_head = false;
  return workload;
}

int replicas_beside_torch(const BenchmarkOptions& options) {
  const auto& gpus = options.workload.gpus;
  return gpus.empty() ? options.num_replicas : static_cast<int>(gpus.size());
}

Command torch_command(const BenchmarkOptions& options, TorchPeer peer) {
  Command job =
      torch_job(options.torch_python, options.peers, torch_workload(options), replicas_beside_torch(options));
  if (peer == TorchPeer::kSameAllocator) return with_own_allocator(std::move(job));
  if (peer == TorchPeer::kCompiled) return with_compiled_model(std::move(job));
  if (peer == TorchPeer::kCompiledProcess) return with_compiled_model(in_one_process(std::move(job)));
  return job;
}

}  // namespace lockstep::benchmarks
