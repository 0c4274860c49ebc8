// The job of reliability_benchmark.py: one worker of a training with backups. Its peers are
// benchmarks/peers/torch_backup.py and keras_backup.py; backup_lines.py describes what they print.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/benchmarks/local_cluster.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/benchmarks/reliability/backup_job_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/training/callbacks/divergence_check.h"
#include "lockstep/training/checkpoints/backup.h"

namespace lockstep::benchmarks {
namespace {

using Batch = torch::data::Example<>;

/// Uses the same clock as Python's time.monotonic().
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Job {
 public:
  explicit Job(const BackupJobOptions& options)
      : options_(options),
        strategy_(cluster_of_job(), cpu_devices(1)),
        model_(strategy_.scope([&](ReplicaContext&) { return WorkloadModel(options.workload); })),
        optimizer_(strategy_.scope(
            [&](ReplicaContext& replica) { return make_optimizer(options.workload, *model_[replica]); })),
        batch_(strategy_.distribute_values_from_function(
            [&](const ValueContext&) { return random_batch(options.workload, shard_size()); })) {
    batch_.set_batch_sizes({options.workload.global_batch_size, {shard_size()}});
  }

  void train() {
    say("pid", getpid());
    auto backup = make_backup("backup", /*asynchronous=*/true, /*sharded=*/false);
    TrainingProgress progress;
    if (const auto restored = backup->restore()) progress = restored->progress;
    say("begin", progress.step);
    while (progress.step < options_.steps) {
      step();
      ++progress.step;
      if (progress.step % options_.save_every == 0) save(*backup, progress);
      say("step", progress.step);
    }
    backup->finish();
  }

  /// Times blocks of steps without a checkpoint, with one made at the first step and on disk by the block's
  /// end, and with a comparison of the replicas in place of each step.
  void measure() {
    step();
    step();
    for (int block = 0; block < options_.blocks; ++block) {
      std::array<std::string, 5> kinds{"none", "synchronous", "asynchronous", "sharded", "comparison"};
      // No kind always follows the same other one.
      std::rotate(kinds.begin(), kinds.begin() + block % 5, kinds.end());
      for (const auto& kind : kinds) {
        const bool is_saved = kind != "none" && kind != "comparison";
        auto backup = is_saved ? make_backup(kind, kind != "synchronous", kind == "sharded") : nullptr;
        const double begin = now();
        for (int i = 0; i < options_.steps; ++i) {
          if (kind == "comparison") {
            compare(block);
          } else {
            step();
          }
          if (backup) backup->commit_written();
          if (i == 0 && is_saved) save(*backup, {.step = block + 1});
        }
        if (backup) backup->finish();
        if (is_first()) std::printf("block %s %.6f\n", kind.c_str(), now() - begin);
        std::fflush(stdout);
      }
    }
  }

 private:
  bool is_first() const { return strategy_.first_local_replica() == 0; }
  int64_t shard_size() const {
    return options_.workload.global_batch_size / strategy_.num_replicas_in_sync();
  }

  void say(const char* what, int64_t number) const {
    if (!is_first() && what != std::string("pid")) return;
    std::printf("%s %d %lld %.6f\n", what, strategy_.cluster_resolver()->rank(),
                static_cast<long long>(number), now());
    std::fflush(stdout);
  }

  std::unique_ptr<Backup> make_backup(const std::string& name, bool asynchronous, bool sharded) {
    auto backup = std::make_unique<Backup>(strategy_, BackupOptions{.folder = options_.folder + "/" + name,
                                                                    .asynchronous = asynchronous,
                                                                    .sharded = sharded,
                                                                    .on_message = [](auto&) {}});
    backup->state().add_model(model_);
    backup->state().add_optimizer("optimizer", optimizer_);
    return backup;
  }

  /// Compares the replicas first, as BackupAndRestore does.
  void save(Backup& backup, const TrainingProgress& progress) {
    compare(progress.step);
    backup.save(progress);
  }

  void compare(int64_t step) {
    check_divergence(strategy_, step, module_pointers(model_.local_values()), optimizer_pointers());
  }

  std::vector<torch::optim::Optimizer*> optimizer_pointers() {
    std::vector<torch::optim::Optimizer*> pointers;
    for (auto& optimizer : optimizer_.local_values()) pointers.push_back(&optimizer);
    return pointers;
  }

  void step() {
    strategy_.run(
        [](ReplicaContext& replica, WorkloadModel& model, FusedAdamW& optimizer, const Batch& batch) {
          optimizer.zero_grad();
          compute_average_loss(replica, model->losses(batch)).backward();
          replica.apply_gradients(optimizer);
        },
        model_, optimizer_, batch_);
  }

  BackupJobOptions options_;
  MultiWorkerMirroredStrategy strategy_;
  Mirrored<WorkloadModel> model_;
  Mirrored<FusedAdamW> optimizer_;
  PerReplica<Batch> batch_;
};

int run(int argc, char** argv) {
  const BackupJobOptions options = parse_backup_job(argc, argv);
  Job job(options);
  if (options.blocks > 0) {
    job.measure();
  } else {
    job.train();
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
