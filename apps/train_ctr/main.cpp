#include <c10/util/StringUtil.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/resume_command.h"
#include "lockstep/apps/shared/monitoring/serve_metrics.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/apps/train_ctr/ctr_backup.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_ctr/ctr_metrics.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/strategies/core/stop_agreement.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/parameter_server/serve_parameters.h"

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

void log(const std::string& text) {
  log_line("train_ctr", text);
}

/// Prints the progress of a training.
class Progress {
 public:
  Progress(const CtrOptions& options, bool is_silent) : options_(options), is_silent_(is_silent) {}

  void step_done(int64_t step, double loss) {
    loss_ += loss;
    ++steps_;
    if ((step + 1) % options_.log_every != 0 && step + 1 != options_.steps) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto rows = static_cast<double>(steps_ * options_.global_batch_size);
    if (!is_silent_)
      print(ctr_progress_text(step + 1, options_.steps, loss_ / static_cast<double>(steps_), rows / seconds) +
            "\n");
    begin();
  }
  /// Leaves out everything done before.
  void begin() {
    begin_ = Clock::now();
    steps_ = 0;
    loss_ = 0;
  }

 private:
  const CtrOptions& options_;
  const bool is_silent_;
  Clock::time_point begin_ = Clock::now();
  int64_t steps_ = 0;
  double loss_ = 0;
};

/// Trains to the end and saves on the way. Throws Stopped if a signal arrives.
void train_to_end(CtrTraining& training, Strategy& strategy, const CtrOptions& options, CtrFacts facts,
                  CtrMetrics& metrics, InterruptionGuard& interruption, const std::string& resume) {
  const auto* cluster = strategy.cluster_resolver();
  const bool is_silent = options.quiet || (cluster != nullptr && cluster->rank() != 0);
  const auto backup = make_ctr_backup(strategy, options, training.objects(), log);
  facts.first_step = backup->first_step();
  if (!is_silent) print(ctr_configuration_text(options, facts) + "\n");

  StopAgreement agreement(strategy, [&] { return interruption.signal(); });
  interruption.begin_steps();
  Progress progress(options, is_silent);
  int signal = 0;
  int64_t next = backup->first_step();
  const auto on_step = [&](int64_t step, double loss) {
    next = step + 1;
    progress.step_done(step, loss);
    if (metrics.is_on()) metrics.step_done(loss, training.result());
    backup->steps_done(next);
    signal = agreement.should_stop();
    return signal == 0;
  };
  while (next < options.steps && signal == 0) {
    const int64_t every = options.test_every > 0 ? options.test_every : options.steps;
    const int64_t end = std::min(options.steps, (next / every + 1) * every);
    progress.begin();
    metrics.begin();
    try {
      training.train(next, end, {.on_step = on_step});
    } catch (const ClosureCancelled&) {
      // The signal has also reached all workers, and they left before this step's closures.
      signal = interruption.signal();
      if (signal == 0) throw;
    }
    if (signal != 0 || next == options.steps) continue;
    const auto scores = training.test();
    metrics.set_test_scores(scores);
    if (!is_silent)
      print(c10::str("step ", next, "/", options.steps, "  test: ", ctr_scores_text(scores), "\n"));
  }
  backup->finish(next);
  if (signal != 0) {
    if (!is_silent) log(stopped_text(signal) + c10::str(" after step ", next));
    if (!is_silent && !options.backup_dir.empty()) log(saved_text(options.backup_dir, resume));
    strategy.end();
    throw Stopped{signal};
  }
  auto result = training.result();
  result.scores = training.test();
  metrics.set_test_scores(result.scores);
  if (!is_silent) {
    result.best = training.best_scores();
    print("\n" + ctr_result_text(result, facts));
  }
  strategy.end();
}

void train_by(const MadeStrategy& made, const CtrOptions& options, InterruptionGuard& interruption,
              const std::string& resume) {
  Strategy& strategy = *made.strategy;
  const ClickData data = open_click_data(options);
  CtrTraining training(strategy, options, data);
  const auto* served = dynamic_cast<const ParameterServerStrategy*>(&strategy);
  if (served != nullptr && !served->is_chief()) interruption.begin_steps();
  if (strategy.serve()) {
    if (interruption.signal() != 0) throw Stopped{interruption.signal()};
    return;
  }
  const auto served_metrics = serve_metrics("train_ctr", options, strategy.cluster_resolver());
  if (served_metrics) {
    served_metrics->add_faults(TrainingFault::kBadExample, data.num_malformed);
    if (strategy.cluster_resolver() != nullptr)
      served_metrics->add_faults(TrainingFault::kRestart, strategy.cluster_resolver()->restart_count());
  }
  CtrMetrics metrics(served_metrics, options);
  train_to_end(training, strategy, options,
               {.data = data.description,
                .num_train = static_cast<int64_t>(*data.train.size()),
                .num_test = static_cast<int64_t>(*data.test.size()),
                .num_malformed = data.num_malformed,
                .first_malformed = data.first_malformed,
                .strategy = made.reason,
                .replicas = strategy.describe()},
               metrics, interruption, resume);
}

void run_training(const CtrOptions& options, const std::string& resume) {
  if (const auto cluster = requested_cluster(options); cluster && cluster->task_type() == "ps") {
    // Despite a signal, the server serves while anyone is connected: the chief may be about to save.
    const InterruptionGuard interruption;
    serve_parameters(cluster, {.backup_dir = options.backup_dir, .on_message = log, .is_leaving = [&] {
                                 return interruption.signal() != 0;
                               }});
    if (interruption.signal() != 0) throw Stopped{interruption.signal()};
    return;
  }
  InterruptionGuard interruption(/*from_first_step=*/true);
  torch::manual_seed(options.seed);
  const ParameterServerOptions parameters{.max_staleness = options.max_staleness,
                                          .slots_per_step = options.slots_per_step,
                                          .looks_ahead = options.looks_ahead,
                                          .on_message = log,
                                          .is_leaving = [&] { return interruption.signal() != 0; }};
  const auto made =
      choose_strategy(options, {.program = "train_ctr", .seed = options.seed, .parameters = parameters});
  try {
    train_by(made, options, interruption, resume);
  } catch (const std::exception&) {
    made.strategy->report_failure(std::current_exception());
    throw;
  }
}

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  const auto strategies = strategy_names();
  const auto line = parse_ctr_command_line(arguments, strategies);
  switch (line.action) {
    case CtrAction::kHelp:
      print(ctr_help_text(strategies));
      break;
    case CtrAction::kVersion:
      print("train_ctr " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      break;
    case CtrAction::kListDevices:
      print_devices();
      break;
    case CtrAction::kTrain:
      run_training(line.options, resume_command(program, arguments));
      break;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  return lockstep::apps::run_torch_program("train_ctr", argc, argv, lockstep::apps::run_action);
}
