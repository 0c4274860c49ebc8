#include "lockstep/apps/train_ctr/run_ctr_training.h"

#include <torch/utils.h>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/monitoring/serve_metrics.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/writable_folder.h"
#include "lockstep/apps/train_ctr/click_data.h"
#include "lockstep/apps/train_ctr/ctr_layout.h"
#include "lockstep/apps/train_ctr/ctr_session.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/parameter_server/serve_parameters.h"

namespace lockstep::apps {
namespace {

void log_of_ctr(const std::string& text) {
  log_line("train_ctr", text);
}

bool has_servers(const Strategy& strategy) {
  return dynamic_cast<const ParameterServerStrategy*>(&strategy) != nullptr;
}

/// Returns whether the chief records the run. Throws UsageError if a folder to write to was given to other
/// workers only. A collective of workers that step together.
bool is_recorded_by_chief(Strategy& strategy, const CtrOptions& options) {
  // Processes of parameter servers have no collectives.
  if (has_servers(strategy)) return !options.run_dir.empty();
  const bool is_chief = is_chief_of(strategy);
  const bool is_recorded = is_given_to_chief(strategy, "--run-dir", options.run_dir, is_chief);
  is_given_to_chief(strategy, "--mlflow-dir", options.mlflow_dir, is_chief);
  return is_recorded;
}

void train_by(const MadeStrategy& made, CtrCommandLine& line, InterruptionGuard& interruption,
              const std::string& resume, std::chrono::steady_clock::time_point began) {
  Strategy& strategy = *made.strategy;
  const CtrOptions& options = line.options;
  const auto* served = dynamic_cast<const ParameterServerStrategy*>(&strategy);
  if (served != nullptr && options.resume != "auto")
    throw UsageError("--resume " + options.resume +
                     ": expected auto with parameter servers, which resume from --backup-dir; to start over, "
                     "name another folder there");
  const bool is_chief = is_chief_of(strategy);
  if (served == nullptr) refuse_what_does_not_fit(strategy, options);
  // Before anything that takes long, such as indexing. Workers of parameter servers have no metrics.
  const auto metrics = served == nullptr || served->is_chief()
                           ? serve_metrics("train_ctr", options, strategy.cluster_resolver())
                           : nullptr;
  const bool is_recorded = is_recorded_by_chief(strategy, options);
  std::vector<std::string> hosts;
  if (is_chief) {
    require_writable_folder("--backup-dir", options.backup_dir);
    require_writable_folder("--mlflow-dir", options.mlflow_dir);
  }
  if (is_recorded && served == nullptr) hosts = hosts_of_workers(strategy);
  const auto directory = make_run_directory(
      strategy, is_recorded,
      {.run_dir = options.run_dir, .backup_dir = options.backup_dir, .resume = options.resume},
      line.options.run_dir);
  decide_strategy(strategy, has_servers(strategy) ? "parameter_server" : strategy_of_workers(strategy),
                  line.options, line.origins);
  const ClickData data = open_click_data(options, is_chief ? log_of_ctr : nullptr);
  CtrTraining training(strategy, options, data);
  if (served != nullptr && !served->is_chief()) interruption.begin_steps();
  if (strategy.serve()) {
    if (const auto profile = training.input_profile(); profile && !options.quiet)
      print(input_profile_text(*profile));
    if (interruption.signal() != 0)
      throw Stopped{.signal = interruption.signal(), .is_saved = !options.backup_dir.empty()};
    return;
  }
  if (metrics) {
    metrics->add_faults(TrainingFault::kBadExample, data.num_malformed);
    if (strategy.cluster_resolver() != nullptr)
      metrics->add_faults(TrainingFault::kRestart, strategy.cluster_resolver()->restart_count());
  }
  CtrSession session({.strategy = strategy,
                      .interruption = interruption,
                      .options = options,
                      .origins = line.origins,
                      .resume = resume,
                      .is_chief = is_chief,
                      .metrics = metrics,
                      .began = began,
                      .paths = directory ? std::optional(directory->paths()) : std::nullopt,
                      .hosts = std::move(hosts),
                      .facts = {.data = data.description,
                                .num_train = static_cast<int64_t>(*data.train.size()),
                                .num_test = static_cast<int64_t>(*data.test.size()),
                                .num_malformed = data.num_malformed,
                                .first_malformed = data.first_malformed,
                                .strategy = made.reason,
                                .replicas = strategy.describe(),
                                .lanes = lanes_of(data.train, options.global_batch_size)}},
                     training);
  session.run();
}

/// Despite a signal, the server serves while anyone is connected: the chief may be about to save.
void serve_as_ps(const std::shared_ptr<const ClusterResolver>& cluster, const CtrOptions& options) {
  const InterruptionGuard interruption;
  require_writable_folder("--backup-dir", options.backup_dir);
  serve_parameters(cluster, {.backup_dir = options.backup_dir,
                             .on_message = log_of_ctr,
                             .is_leaving = [&] { return interruption.signal() != 0; },
                             .table_disk = options.table_disk});
  if (interruption.signal() != 0)
    throw Stopped{.signal = interruption.signal(), .is_saved = !options.backup_dir.empty()};
}

}  // namespace

void run_ctr_training(CtrCommandLine line, const std::string& resume) {
  const CtrOptions& options = line.options;
  if (const auto cluster = requested_cluster(options); cluster && cluster->task_type() == "ps")
    return serve_as_ps(cluster, options);
  const auto began = std::chrono::steady_clock::now();
  InterruptionGuard interruption(/*from_first_step=*/true);
  torch::manual_seed(options.seed);
  const ParameterServerOptions parameters{.max_staleness = options.max_staleness,
                                          .slots_per_step = options.slots_per_step,
                                          .looks_ahead = options.looks_ahead,
                                          .on_message = log_of_ctr,
                                          .is_leaving = [&] { return interruption.signal() != 0; }};
  const auto made =
      choose_strategy(options, {.program = "train_ctr", .seed = options.seed, .parameters = parameters});
  try {
    train_by(made, line, interruption, resume, began);
  } catch (const std::exception&) {
    made.strategy->report_failure(std::current_exception());
    throw;
  }
}

}  // namespace lockstep::apps
