#include <c10/util/StringUtil.h>

#include <string>

#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/job_comparison.h"
#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/loops/strategy_loop.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kPipelineAgainstTorch{Bar::Side::kAtLeast, 1.2};
constexpr Bar kPipelineAgainstTunedTorch{Bar::Side::kAtLeast, 1.0};

std::string title_of_pipeline(const BenchmarkOptions& options) {
  return c10::str("pipeline=", options.num_replicas, ", ", options.workload.schedule, " of ",
                  options.workload.micro_batches);
}

void compare_pipeline_with_data(const BenchmarkOptions& options, Report& report) {
  const int ranks = options.num_replicas;
  const auto whole = make_strategy_loop(options.workload, {.num_replicas = ranks});
  const auto stages = make_strategy_loop(options.workload, {.num_replicas = ranks, .pipeline = ranks});
  report.add_speed(c10::str("1 replica of ", ranks, " ranks, ", title_of_pipeline(options)),
                   c10::str(replicas(ranks), ", data=", ranks), measure_seconds(options, *whole, *stages),
                   work_of(options), std::nullopt);
}

void compare_pipeline_of_workers(const BenchmarkOptions& options, Report& report) {
  const Workload& workload = options.workload;
  const int ranks = options.num_replicas;
  const OwnJob whole = workers_job(options, workload);
  const OwnJob stages{c10::str(ranks, " workers of a replica, ", title_of_pipeline(options)),
                      with_pipeline_axis(own_job("workers", workload, ranks), workload, ranks)};
  compare_own_job(options, stages, c10::str(whole.title, " each, data=", ranks), whole.command, std::nullopt,
                  report);
  if (options.torch_python.empty()) return;
  const auto compare = [&](TorchPeer peer, const char* as, const Bar& bar) {
    compare_own_job(options, stages,
                    c10::str("PyTorch pipeline, ", torch_schedule(workload), ", Gloo, fused AdamW, ", as),
                    with_torch_pipeline(torch_command(options, peer), workload), bar, report,
                    /*compares_losses=*/true);
  };
  compare(TorchPeer::kAsInstalled, "as installed", kPipelineAgainstTorch);
  compare(TorchPeer::kSameAllocator, "the same allocator", kPipelineAgainstTunedTorch);
}

}  // namespace

void compare_pipelines(const BenchmarkOptions& options, Report& report) {
  for (const auto& schedule : options.schedules) {
    BenchmarkOptions with_schedule = options;
    with_schedule.workload.schedule = schedule;
    compare_pipeline_with_data(with_schedule, report);
    compare_pipeline_of_workers(with_schedule, report);
  }
  if (options.torch_python.empty())
    report.add_not_measured("a pipeline of workers against PyTorch", "no --peer-torch-python");
}

}  // namespace lockstep::benchmarks
