#include "lockstep/benchmarks/comparisons.h"

#include <c10/util/StringUtil.h>

#include <iostream>
#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/benchmarks/job_comparison.h"
#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/loops/strategy_loop.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/benchmarks/remote_training.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kAgainstBareLoop{Bar::Side::kAtLeast, 0.98};
constexpr Bar kAgainstIndependentLoops{Bar::Side::kAtLeast, 0.95};
constexpr Bar kAgainstTorch{Bar::Side::kAtLeast, 1.3};
constexpr Bar kAgainstTunedTorch{Bar::Side::kAtLeast, 1.0};
constexpr Bar kAgainstCompiledTorch{Bar::Side::kAtLeast, 1.0};
// Most of its time goes to products of matrices, by the same library.
constexpr Bar kGptAgainstTorch{Bar::Side::kAtLeast, 1.1};
constexpr Bar kAgainstTensorFlow{Bar::Side::kAtLeast, 1.8};
constexpr Bar kAgainstBareLoopOnGpu{Bar::Side::kAtLeast, 0.99};
constexpr Bar kAgainstTorchOnGpu{Bar::Side::kAtLeast, 1.0};
constexpr Bar kAgainstTorchByGraphs{Bar::Side::kAtLeast, 2.0};
constexpr Bar kAgainstOneReplica{Bar::Side::kAtLeast, 0.9};
constexpr Bar kAgainstOneBatch{Bar::Side::kAtLeast, 0.95};
constexpr Bar kWorkersAgainstTorch{Bar::Side::kAtLeast, 1.2};
constexpr Bar kWorkersAgainstTunedTorch{Bar::Side::kAtLeast, 1.0};
constexpr Bar kWorkersAgainstOneProcess{Bar::Side::kAtLeast, 0.9};
// At most 1.4 times the time.
constexpr Bar kRecomputation{Bar::Side::kAtLeast, 0.714};
constexpr Bar kMemory{Bar::Side::kAtMost, 1.05};

void compare_jobs(const BenchmarkOptions& options, const Workload& workload, int num_replicas,
                  const std::string& name, const Command& other_job, std::optional<Bar> bar, Report& report) {
  BenchmarkOptions with_count = options;
  with_count.num_replicas = num_replicas;
  compare_own_job(with_count, {replicas(num_replicas), own_job("mirrored", workload, num_replicas)}, name,
                  other_job, bar, report);
}

// Keras's example has a different head from torchvision's model.
Workload tensorflow_workload(const BenchmarkOptions& options) {
  Workload workload = options.workload;
  workload.dense_head = true;
  return workload;
}

std::string torch_title(const BenchmarkOptions& options, TorchPeer peer) {
  const size_t num_gpus = options.workload.gpus.size();
  const std::string optimizer = options.workload.weight_decay() > 0 ? "fused AdamW, " : "fused Adam, ";
  if (peer == TorchPeer::kCompiledProcess) return "PyTorch, " + optimizer + "torch.compile, one process";
  if (num_gpus == 0) {
    return "PyTorch DDP, Gloo, " + optimizer +
           (peer == TorchPeer::kSameAllocator ? "the same allocator"
            : peer == TorchPeer::kCompiled    ? "torch.compile"
                                              : "as installed");
  }
  return c10::str("PyTorch DDP, NCCL, ", optimizer, peer == TorchPeer::kCompiled ? "torch.compile, " : "",
                  num_gpus == 1 ? "one process" : c10::str(num_gpus, " processes"));
}

std::optional<Bar> torch_bar(const BenchmarkOptions& options, TorchPeer peer) {
  const size_t num_gpus = options.workload.gpus.size();
  const bool is_gpt = options.workload.model == BenchmarkModel::kGpt;
  if (peer == TorchPeer::kCompiled || peer == TorchPeer::kCompiledProcess)
    return num_gpus == 0 && !is_gpt ? std::optional(kAgainstCompiledTorch) : std::nullopt;
  if (num_gpus == 0 && peer == TorchPeer::kSameAllocator) return kAgainstTunedTorch;
  if (num_gpus == 0) return is_gpt ? kGptAgainstTorch : kAgainstTorch;
  if (num_gpus > 1) return std::nullopt;
  return options.workload.cuda_graph ? kAgainstTorchByGraphs : kAgainstTorchOnGpu;
}

}  // namespace

void compare_with_bare_loop(const BenchmarkOptions& options, Report& report) {
  const auto bare = make_bare_loop(options.workload);
  const auto own = make_strategy_loop(options.workload, {.num_replicas = 1});
  report.add_speed(replicas(1), "LibTorch alone", measure_seconds(options, *bare, *own), work_of(options),
                   options.workload.gpus.empty() ? kAgainstBareLoop : kAgainstBareLoopOnGpu);
}

void compare_with_one_replica(const BenchmarkOptions& options, Report& report) {
  const auto one = make_strategy_loop(options.workload, {.num_replicas = 1});
  const auto several = make_strategy_loop(options.workload, {.num_replicas = options.num_replicas});
  report.add_speed(replicas(options.num_replicas) + " on one device", "1 replica, the same global batch",
                   measure_seconds(options, *one, *several), work_of(options), kAgainstOneReplica);
}

void compare_images_with_one_batch(const BenchmarkOptions& options, Report& report) {
  const auto one_batch = make_strategy_loop(options.workload, {.num_replicas = 1});
  Workload workload = options.workload;
  workload.images = options.images;
  tell("opening " + options.images);
  const auto fed = make_strategy_loop(workload, {.num_replicas = 1});
  BenchmarkOptions longer = options;
  longer.steps *= kStepsOfInput;
  report.add_speed("1 replica, images out of files", "1 replica, one random batch",
                   measure_seconds(longer, *one_batch, *fed), work_of(longer), kAgainstOneBatch);
}

void compare_with_bare_process(const BenchmarkOptions& options, Report& report) {
  compare_jobs(options, options.workload, 1, "LibTorch alone, in a process of its own",
               own_job("bare", options.workload, 1), kAgainstBareLoop, report);
}

void compare_with_independent_loops(const BenchmarkOptions& options, Report& report) {
  const auto independent = make_independent_loops(options.workload, options.num_replicas);
  const auto own = make_strategy_loop(options.workload, {.num_replicas = options.num_replicas});
  report.add_speed(replicas(options.num_replicas), c10::str(options.num_replicas, " independent threads"),
                   measure_seconds(options, *independent, *own), work_of(options), kAgainstIndependentLoops);
}

void compare_recomputation(const BenchmarkOptions& options, Report& report) {
  Workload workload = options.workload;
  const auto kept = make_strategy_loop(workload, {.num_replicas = 1});
  workload.recompute = true;
  const auto recomputed = make_strategy_loop(workload, {.num_replicas = 1});
  report.add_speed("1 replica, every block computed again", "1 replica, activations kept",
                   measure_seconds(options, *kept, *recomputed), work_of(options), kRecomputation);
}

void compare_bucket_caps(const BenchmarkOptions& options, Report& report) {
  const auto independent = make_independent_loops(options.workload, options.num_replicas);
  for (const int mebibytes : options.bucket_mebibytes) {
    const auto own = make_strategy_loop(
        options.workload,
        {.num_replicas = options.num_replicas, .bucket_bytes = static_cast<int64_t>(mebibytes) << 20});
    report.add_speed(c10::str(replicas(options.num_replicas), ", buckets of ", mebibytes, " MiB"),
                     c10::str(options.num_replicas, " independent threads"),
                     measure_seconds(options, *independent, *own), work_of(options), std::nullopt);
  }
}

void compare_with_torch(const BenchmarkOptions& options, TorchPeer peer, Report& report) {
  compare_jobs(options, torch_workload(options), replicas_beside_torch(options), torch_title(options, peer),
               torch_command(options, peer), torch_bar(options, peer), report);
}

void compare_workers(const BenchmarkOptions& options, Report& report) {
  const Workload workload = torch_workload(options);
  const OwnJob workers = workers_job(options, workload);
  const bool on_cpu = workload.gpus.empty();
  const auto bar_on_cpu = [&](const Bar& bar) { return on_cpu ? std::optional(bar) : std::nullopt; };
  compare_own_job(options, workers, replicas(options.num_replicas) + " in one process",
                  own_job("mirrored", workload, options.num_replicas), bar_on_cpu(kWorkersAgainstOneProcess),
                  report);
  if (options.torch_python.empty()) {
    report.add_not_measured("workers against PyTorch DDP", "no --peer-torch-python");
    return;
  }
  const auto compare = [&](TorchPeer peer, const Bar& bar) {
    compare_own_job(options, workers, torch_title(options, peer), torch_command(options, peer),
                    bar_on_cpu(bar), report);
  };
  compare(TorchPeer::kAsInstalled, kWorkersAgainstTorch);
  if (on_cpu) compare(TorchPeer::kSameAllocator, kWorkersAgainstTunedTorch);
}

void compare_with_tensorflow(const BenchmarkOptions& options, Report& report) {
  const Workload workload = tensorflow_workload(options);
  compare_jobs(options, workload, options.num_replicas, "TensorFlow MirroredStrategy",
               tensorflow_job(options.tensorflow_python, options.peers, workload, options.num_replicas),
               kAgainstTensorFlow, report);
}

void compare_memory(const BenchmarkOptions& options, Report& report) {
  const auto peak = [&](const char* name, int num_replicas) {
    return [job = own_job(name, options.workload, num_replicas)] {
      RemoteTraining training(job);
      // Three steps reach the peak: the first creates the optimizer's state, and allocations repeat from the
      // second on.
      training.seconds_for(3);
      return static_cast<double>(training.peak_memory_bytes());
    };
  };
  report.add_memory(
      "1 replica, peak memory", "LibTorch alone",
      measure_alternating_pairs(options.num_pairs, peak("mirrored", 1), peak("bare", 1), &std::cerr),
      kMemory);
  const int count = options.num_replicas;
  if (count == 1) return;
  report.add_memory(replicas(count) + ", peak memory", c10::str(count, " independent threads"),
                    measure_alternating_pairs(options.num_pairs, peak("mirrored", count),
                                              peak("independent", count), &std::cerr),
                    kMemory);
}

void measure_starts(const BenchmarkOptions& options, Report& report) {
  struct Program {
    std::string name;
    Command job;
    std::vector<double> seconds;
  };
  const int count = replicas_beside_torch(options);
  const Workload torch = torch_workload(options);
  std::vector<Program> programs{{"Lockstep, " + replicas(count), own_job("mirrored", torch, count), {}}};
  if (!options.torch_python.empty()) {
    programs.push_back({"PyTorch DDP", torch_command(options, TorchPeer::kAsInstalled), {}});
  }
  // Its program knows logical CPUs only.
  if (!options.tensorflow_python.empty() && options.workload.gpus.empty()) {
    programs.push_back(
        {"TensorFlow MirroredStrategy",
         tensorflow_job(options.tensorflow_python, options.peers, tensorflow_workload(options), count),
         {}});
  }
  for (int start = 0; start < options.num_starts; ++start) {
    for (auto& program : programs) {
      tell("starting " + program.name);
      program.seconds.push_back(RemoteTraining(program.job).seconds_to_first_step());
    }
  }
  for (const auto& program : programs) report.add_start(program.name, program.seconds);
}

}  // namespace lockstep::benchmarks
