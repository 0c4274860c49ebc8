#include "lockstep/apps/train_images/run_training.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/monitoring/serve_metrics.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/writable_folder.h"
#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/data_warnings.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/apps/train_images/training/decided_values.h"
#include "lockstep/apps/train_images/training/precision_choice.h"
#include "lockstep/apps/train_images/training_session.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/devices/cudnn_benchmark.h"
#include "lockstep/runtime/precision/tf32.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

/// Decides the role together with the other workers, by collectives. Throws FolderError if this worker cannot
/// write a folder that it has to write.
WorkerRole role_of(Strategy& strategy, const TrainOptions& options) {
  WorkerRole role;
  role.is_chief = is_chief_of(strategy);
  role.is_silent = !role.is_chief || options.quiet;  // all workers would print the same
  role.is_recorded = is_given_to_chief(strategy, "--run-dir", options.run_dir, role.is_chief);
  role.is_saved = is_given_to_chief(strategy, "--backup-dir", options.backup_dir, role.is_chief);
  is_given_to_chief(strategy, "--mlflow-dir", options.mlflow_dir, role.is_chief);
  if (role.is_chief || options.shard_backup) require_writable_folder("--backup-dir", options.backup_dir);
  if (role.is_chief) require_writable_folder("--mlflow-dir", options.mlflow_dir);
  if (role.is_recorded) role.hosts = hosts_of_workers(strategy);
  return role;
}

/// Returns all values of the run but the number of parameters, which the model decides.
ResolvedRun resolve_run(const MadeStrategy& made, const TrainOptions& options, const TrainPlan& plan,
                        const DataLocation& location, const ImageData& data) {
  Strategy& strategy = *made.strategy;
  ResolvedRun resolved{.options = options,
                       .plan = plan,
                       .data = location.why,
                       .hint = location.hint,
                       .num_train = size_of(data.train),
                       .num_test = size_of(data.test),
                       .skipped = data.skipped,
                       .num_classes = data.num_classes,
                       .channels = channels_of(options.model),
                       .strategy = made.reason,
                       .replicas = strategy.describe(),
                       .num_replicas = strategy.num_replicas_in_sync()};
  const auto threads = strategy.run([](ReplicaContext&) { return at::get_num_threads(); });
  resolved.threads = threads.local_values().front();
  return resolved;
}

void train_by(const MadeStrategy& made, InterruptionGuard& interruption, CommandLine line,
              const std::string& resume, std::chrono::steady_clock::time_point began) {
  const TrainOptions& options = line.options;
  Strategy& strategy = *made.strategy;
  check_precision(options.precision, strategy.devices());
  const Tf32Guard tf32(tf32_use(options.precision));
  const CudnnBenchmarkGuard benchmark(measures_convolutions(options.cudnn_benchmark, strategy.devices()));
  const WorkerRole role = role_of(strategy, options);
  const auto metrics = serve_metrics("train_images", options, strategy.cluster_resolver());
  std::optional<RunDirectory> directory;
  if (role.is_chief && role.is_recorded) {
    line.options.run_dir = record_folder({.run_dir = options.run_dir,
                                          .backup_dir = options.backup_dir,
                                          .resume = options.resume,
                                          .restart_count = strategy.cluster_resolver() != nullptr
                                                               ? strategy.cluster_resolver()->restart_count()
                                                               : 0});
    directory.emplace(options.run_dir);
  }

  const DataLocation location = locate_data(options.data);
  const ImageData data = load_images(location, options);
  if (!role.is_silent) {
    for (const auto& warning : data_warnings(location, data)) log_line("train_images", "warning: " + warning);
  }
  if (metrics) metrics->add_faults(TrainingFault::kBadExample, static_cast<int64_t>(data.skipped.size()));
  const TrainPlan plan = make_plan(options, strategy.num_replicas_in_sync(), size_of(data.train));
  decide_values(line, location, strategy);
  PreparedRun run{.strategy = strategy,
                  .interruption = interruption,
                  .data = data,
                  .origins = line.origins,
                  .resume = resume,
                  .role = role,
                  .paths = directory ? std::optional(directory->paths()) : std::nullopt,
                  .metrics = metrics,
                  .began = began,
                  .resolved = resolve_run(made, options, plan, location, data)};
  TrainingSession session(std::move(run));
  session.run();
}

}  // namespace

void run_training(const CommandLine& line, const std::string& resume) {
  const auto began = std::chrono::steady_clock::now();
  InterruptionGuard interruption(/*from_first_step=*/true);
  torch::manual_seed(line.options.seed);
  const MadeStrategy made =
      choose_strategy(line.options, {.program = "train_images", .seed = line.options.seed});
  if (line.options.cuda_graph) check_cuda_graph(made.strategy->devices());
  try {
    train_by(made, interruption, line, resume, began);
  } catch (const std::exception&) {
    made.strategy->report_failure(std::current_exception());
    throw describe_failure(std::current_exception(), made.strategy->cluster_resolver());
  }
}

}  // namespace lockstep::apps
