#include <c10/util/StringUtil.h>

#include <optional>
#include <string>
#include <utility>

#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/job_comparison.h"
#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/loops/strategy_loop.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kTensorAgainstData{Bar::Side::kAtLeast, 0.9};
constexpr Bar kTensorAgainstTorch{Bar::Side::kAtLeast, 1.2};
constexpr Bar kTensorAgainstTunedTorch{Bar::Side::kAtLeast, 1.0};

void compare_workers_of_a_replica(const BenchmarkOptions& options, Report& report) {
  const Workload& workload = options.workload;
  const bool on_cpu = workload.gpus.empty();
  const int ranks = options.num_replicas;
  const OwnJob whole = workers_job(options, workload);
  const OwnJob cut{c10::str(ranks, " workers of a replica, tensor=", ranks),
                   with_tensor_axis(own_job("workers", workload, ranks), ranks)};
  compare_own_job(options, cut, c10::str(whole.title, " each, data=", ranks), whole.command, std::nullopt,
                  report);
  if (options.torch_python.empty()) {
    report.add_not_measured("a replica of several workers against PyTorch", "no --peer-torch-python");
    return;
  }
  const auto compare = [&](TorchPeer peer, const char* as, const Bar& bar) {
    compare_own_job(
        options, cut, c10::str("PyTorch parallelize_module, ", on_cpu ? "Gloo" : "NCCL", ", fused AdamW", as),
        with_torch_tensor(torch_command(options, peer)), on_cpu ? std::optional(bar) : std::nullopt, report);
  };
  compare(TorchPeer::kAsInstalled, on_cpu ? ", as installed" : "", kTensorAgainstTorch);
  if (on_cpu) compare(TorchPeer::kSameAllocator, ", the same allocator", kTensorAgainstTunedTorch);
}

}  // namespace

void compare_tensor(const BenchmarkOptions& options, Report& report) {
  const int ranks = options.num_replicas;
  {
    const auto whole = make_strategy_loop(options.workload, {.num_replicas = ranks});
    const auto cut = make_strategy_loop(options.workload, {.num_replicas = ranks, .tensor = ranks});
    report.add_speed(c10::str("1 replica of ", ranks, " ranks, tensor=", ranks),
                     c10::str(replicas(ranks), ", data=", ranks), measure_seconds(options, *whole, *cut),
                     work_of(options),
                     options.workload.gpus.empty() ? std::optional(kTensorAgainstData) : std::nullopt);
  }
  compare_workers_of_a_replica(options, report);
}

}  // namespace lockstep::benchmarks
