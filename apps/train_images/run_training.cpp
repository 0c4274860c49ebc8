#include "lockstep/apps/train_images/run_training.h"

#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/apps/shared/monitoring/serve_metrics.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/session/run_by_strategy.h"
#include "lockstep/apps/shared/session/worker_role.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/data_warnings.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/image_session.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/apps/train_images/training/decided_values.h"
#include "lockstep/apps/train_images/training/image_layout.h"
#include "lockstep/apps/train_images/training/image_stages.h"
#include "lockstep/apps/train_images/training/training_callbacks.h"
#include "lockstep/runtime/devices/cudnn_benchmark.h"
#include "lockstep/runtime/precision/tf32.h"

namespace lockstep::apps {
namespace {

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
  resolved.threads = threads_per_replica(strategy);
  return resolved;
}

void train_by(const MadeStrategy& made, InterruptionGuard& interruption, CommandLine line,
              const std::string& resume, std::chrono::steady_clock::time_point began) {
  const TrainOptions& options = line.options;
  Strategy& strategy = *made.strategy;
  check_precision(options.precision, strategy.devices());
  check_image_stages(strategy, options);  // before data is read and a folder made
  const Tf32Guard tf32(tf32_use(options.precision));
  const CudnnBenchmarkGuard benchmark(measures_convolutions(options.cudnn_benchmark, strategy.devices()));
  const WorkerRole role = role_of(strategy, options);
  const auto metrics = serve_metrics("train_images", options, strategy.cluster_resolver());
  const DataLocation location = locate_data(options.data);
  const ImageData data = load_images(location, options);
  if (!role.is_silent) {
    for (const auto& warning : data_warnings(location, data)) log_line("train_images", "warning: " + warning);
  }
  if (metrics) metrics->add_faults(TrainingFault::kBadExample, static_cast<int64_t>(data.skipped.size()));
  TrainPlan plan = make_plan(options, strategy.num_replicas_in_sync(), size_of(data.train));
  plan_image_stages(strategy, options, plan);
  refuse_what_does_not_fit(strategy, options, plan, data.num_classes);
  const auto directory = open_run_directory(strategy, role, line.options);
  decide_values(line, location, strategy);
  ImageSession session({.program = "train_images",
                        .interruption = interruption,
                        .resume = resume,
                        .role = role,
                        .paths = directory ? std::optional(directory->paths()) : std::nullopt,
                        .metrics = metrics,
                        .progress = progress_options()},
                       {.strategy = strategy,
                        .data = data,
                        .origins = line.origins,
                        .began = began,
                        .resolved = resolve_run(made, options, plan, location, data)});
  session.run();
}

}  // namespace

void run_training(const CommandLine& given, const std::string& resume) {
  CommandLine line = given;
  if (const std::string chosen = choose_layout(line.options); !chosen.empty())
    log_line("train_images", chosen);
  run_by_strategy(line.options, {.program = "train_images",
                                 .seed = line.options.seed,
                                 .cuda_graph = line.options.cuda_graph,
                                 .shards_parameters = true,
                                 .train = [&](const MadeStrategy& made, InterruptionGuard& interruption,
                                              std::chrono::steady_clock::time_point began) {
                                   train_by(made, interruption, line, resume, began);
                                 }});
}

}  // namespace lockstep::apps
