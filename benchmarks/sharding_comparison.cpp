#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/job_comparison.h"
#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/loops/strategy_loop.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kStage1{Bar::Side::kAtLeast, 0.97};
constexpr Bar kStage2{Bar::Side::kAtLeast, 0.95};
constexpr Bar kStage3{Bar::Side::kAtLeast, 0.85};
constexpr Bar kStage3OfWorkers{Bar::Side::kAtLeast, 0.75};
constexpr Bar kStage3AgainstFsdp{Bar::Side::kAtLeast, 1.2};
constexpr Bar kStage3AgainstTunedFsdp{Bar::Side::kAtLeast, 1.0};

/// Gloo has no reduce-scatter of its own for tensors, which slows FSDP2.
std::string torch_sharding_title(const BenchmarkOptions& options, const std::string& way, bool is_tuned) {
  const bool on_cpu = options.workload.gpus.empty();
  return c10::str("PyTorch ", way == "fsdp2" ? "FSDP2" : "ZeRO 1", on_cpu ? ", Gloo" : ", NCCL",
                  ", fused AdamW",
                  !on_cpu    ? ""
                  : is_tuned ? ", the same allocator"
                             : ", as installed");
}

void compare_sharded_workers(const BenchmarkOptions& options, Report& report) {
  const Workload workload = torch_workload(options);
  const bool on_cpu = workload.gpus.empty();
  const auto bar_on_cpu = [&](const Bar& bar) { return on_cpu ? std::optional(bar) : std::nullopt; };
  Command whole = own_job("workers", workload, options.num_replicas);
  compare_own_job(options, sharded_workers_job(options, workload, 3), workers_job(options, workload).title,
                  whole, bar_on_cpu(kStage3OfWorkers), report);
  if (options.torch_python.empty()) {
    report.add_not_measured("sharding of workers against PyTorch", "no --peer-torch-python");
    return;
  }
  for (const int stage : {1, 3}) {
    const std::string way = stage == 1 ? "zero1" : "fsdp2";
    for (const bool is_tuned : {false, true}) {
      if (is_tuned && !on_cpu) continue;
      Command job = with_torch_sharding(
          torch_command(options, is_tuned ? TorchPeer::kSameAllocator : TorchPeer::kAsInstalled), way);
      const auto bar = bar_on_cpu(is_tuned ? kStage3AgainstTunedFsdp : kStage3AgainstFsdp);
      compare_own_job(options, sharded_workers_job(options, workload, stage),
                      torch_sharding_title(options, way, is_tuned), job, stage == 3 ? bar : std::nullopt,
                      report);
    }
  }
}

}  // namespace

void compare_sharding(const BenchmarkOptions& options, Report& report) {
  const bool has_units = options.workload.model == BenchmarkModel::kGpt;
  {
    const auto whole = make_strategy_loop(options.workload, {.num_replicas = options.num_replicas});
    for (const int stage : {1, 2, 3}) {
      if (stage == 3 && !has_units) continue;
      const auto sharded =
          make_strategy_loop(options.workload, {.num_replicas = options.num_replicas, .sharding = stage});
      report.add_speed(c10::str(replicas(options.num_replicas), ", sharding stage ", stage),
                       replicas(options.num_replicas), measure_seconds(options, *whole, *sharded),
                       work_of(options),
                       stage == 1   ? kStage1
                       : stage == 2 ? kStage2
                                    : kStage3);
    }
  }
  if (!has_units) {
    report.add_not_measured("sharding stage 3", "only a GPT has units: --model gpt");
  } else if (options.workload.gpus.size() == 1) {
    report.add_not_measured("sharding of workers", "each needs a GPU of its own");
  } else {
    compare_sharded_workers(options, report);
  }
}

}  // namespace lockstep::benchmarks
