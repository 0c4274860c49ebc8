#include "lockstep/apps/train_images/training_session.h"

#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/changed_settings.h"
#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/monitoring/mlflow_recording.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/apps/train_images/options/train_settings.h"
#include "lockstep/apps/train_images/training/image_record.h"
#include "lockstep/apps/train_images/training/numbers_error.h"
#include "lockstep/apps/train_images/training/training.h"
#include "lockstep/apps/train_images/training/training_callbacks.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/inject_faults.h"
#include "lockstep/training/monitoring/prometheus_metrics.h"
#include "lockstep/training/reporting/html/learning_rate_plot.h"
#include "lockstep/training/trainer/model_summary.h"

namespace lockstep::apps {
namespace {

/// Tracks the number of the current epoch.
class EpochCounter : public Callback {
 public:
  explicit EpochCounter(int64_t& epoch) : epoch_(epoch) {}
  void on_epoch_begin(FitState& state) override { epoch_ = state.epoch; }

 private:
  int64_t& epoch_;
};

/// Lets signals be remembered once a fit is about to make steps. Must come after all callbacks that may wait
/// for other workers before then.
class BeginSteps : public Callback {
 public:
  explicit BeginSteps(InterruptionGuard& interruption) : interruption_(interruption) {}
  void on_fit_begin(FitState&) override { interruption_.begin_steps(); }

 private:
  InterruptionGuard& interruption_;
};

/// Returns the faults that LOCKSTEP_FAULTS asks for, in a build for tests.
std::vector<Fault> requested_faults() {
  const char* text =
      std::getenv("LOCKSTEP_FAULTS");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (text == nullptr || *text == '\0') return {};
#ifdef LOCKSTEP_FAULT_INJECTION
  try {
    return parse_faults(text);
  } catch (const InvalidArgument& error) {
    throw UsageError(std::string("LOCKSTEP_FAULTS: ") + error.what());
  }
#else
  throw UsageError("LOCKSTEP_FAULTS: expected none, as this build injects no faults; those with tests do");
#endif
}

std::shared_ptr<ShowProgress> make_progress(bool is_silent, std::ostream& no_lines) {
  auto display = display_of_stderr();
  display.is_silent = is_silent;
  return std::make_shared<ShowProgress>(std::cerr, is_silent ? no_lines : std::cout, display,
                                        progress_options());
}

void print_weights(const std::string& path, const LoadReport& report) {
  print(c10::str("weights          ", report.loaded.size(), " tensors of ", path, "\n"));
  for (const auto& line : report.describe()) print("                 " + line + "\n");
}

}  // namespace

TrainingSession::TrainingSession(PreparedRun run)
    : run_(std::move(run)),
      no_lines_(nullptr),
      progress_(make_progress(run_.role.is_silent, no_lines_)),
      log_([progress = progress_](const std::string& text) {
        progress->clear();
        log_line("train_images", text);
      }) {
  add_callbacks();
}

void TrainingSession::add_callbacks() {
  const TrainOptions& options = run_.resolved.options;
  const WorkerRole& role = run_.role;
  callbacks_ = training_callbacks(
      options, run_.resolved.plan,
      role.is_recorded ? std::optional(RunPaths{role.is_chief ? options.run_dir : "."}) : std::nullopt, log_);
  if (run_.paths) {
    record_ = make_record(*run_.paths, run_.resolved, run_.origins, run_.data, role.hosts, run_.began);
    callbacks_.push_back(record_);
  }
  if (role.is_chief && !options.mlflow_dir.empty()) {
    mlflow_ = make_mlflow("train_images", options, options.run_dir, options.log_every);
    callbacks_.push_back(mlflow_);
  }
  if (run_.metrics) callbacks_.push_back(std::make_shared<PrometheusMetrics>(run_.metrics));
  callbacks_.push_back(progress_);
  callbacks_.push_back(std::make_shared<EpochCounter>(epoch_));
  if (auto faults = requested_faults(); !faults.empty())
    callbacks_.insert(callbacks_.begin(), std::make_shared<InjectFaults>(std::move(faults)));
  stopper_ = std::make_shared<StopOnSignal>(run_.interruption);
  callbacks_.push_back(stopper_);
  if (role.is_saved) {
    callbacks_.push_back(std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = options.backup_dir.empty() ? "." : options.backup_dir,
                      .save_every = SaveInterval::parse(options.save_every),
                      .sharded = options.shard_backup,
                      .resume = options.resume,
                      .configuration = configuration(),
                      .on_resume = [this](const std::string& earlier) { on_resume(earlier); },
                      .on_message = log_}));
  }
  callbacks_.push_back(std::make_shared<BeginSteps>(run_.interruption));
}

void TrainingSession::run() {
  try {
    train_and_finish();
  } catch (const Stopped&) {
    throw;
  } catch (const NotFinite& error) {
    const auto told = not_finite(error.place(), run_.resolved.options, run_.resolved.plan);
    fail_records(RunStatus::kFailed, told.what());
    throw told;
  } catch (const PeerLost& error) {
    // All workers get signals; another one may have received two and ended at once.
    const bool was_stopped = run_.interruption.signal() != 0;
    fail_records(was_stopped ? RunStatus::kInterrupted : RunStatus::kFailed, error.what());
    if (!was_stopped) throw;
    stop(run_.interruption.signal());
  } catch (const std::exception&) {
    fail_records(RunStatus::kFailed, describe_failure(std::current_exception()).message);
    throw;
  }
}

void TrainingSession::fail_records(RunStatus status, const std::string& reason) {
  fail_record("train_images", record_.get(), status, reason);
  end_mlflow("train_images", mlflow_.get(), run_.paths, status, reason);
}

void TrainingSession::train_and_finish() {
  const History history = train_model();
  finish_record(record_.get(), history.stop_reason, stopper_->signal());
  const bool was_stopped = stopper_->signal() != 0;
  end_mlflow("train_images", mlflow_.get(), run_.paths,
             was_stopped ? RunStatus::kInterrupted : RunStatus::kCompleted,
             was_stopped ? signal_name(stopper_->signal()) : history.stop_reason);
  if (stopper_->signal() != 0) stop(stopper_->signal());
  if (!run_.role.is_silent && has_resumed_ && history.steps == 0) log_(already_finished(history));
}

std::string TrainingSession::already_finished(const History& history) const {
  const TrainOptions& options = run_.resolved.options;
  const std::string begin =
      c10::str("this run had already finished: epoch ", history.epochs.size(), " of ", options.epochs);
  if (!history.stop_reason.empty())
    return begin + ", as it stopped early: " + history.stop_reason +
           "; to train on, raise or leave out --early-stopping";
  return begin + "; to train on, raise --epochs";
}

History TrainingSession::train_model() {
  return train({.strategy = run_.strategy,
                .options = run_.resolved.options,
                .plan = run_.resolved.plan,
                .data = run_.data,
                .callbacks = callbacks_,
                .is_recorded = run_.role.is_recorded,
                .record = record_,
                .on_start = [this](torch::nn::Module& model) { on_start(model); },
                .on_weights =
                    [this](const LoadReport& report) {
                      if (!run_.role.is_silent) print_weights(run_.resolved.options.init_weights, report);
                    },
                .on_sweep = [this](const LearningRateSweep& sweep) { on_sweep(sweep); },
                .is_interrupted = [this] { return stopper_->signal() != 0; }});
}

void TrainingSession::on_start(torch::nn::Module& model) {
  run_.resolved.num_parameters = count_parameters(model);
  record_configuration();
  if (!run_.role.is_silent) print(configuration_text(run_.resolved) + "\n" + model_summary(model) + "\n");
}

void TrainingSession::on_resume(const std::string& earlier_configuration) {
  const TrainOptions& options = run_.resolved.options;
  has_resumed_ = true;
  run_.resolved.changed_settings = changed_settings(earlier_configuration, settings_of(options, run_.origins),
                                                    train_flags(/*strategies=*/{}));
  if (run_.resolved.changed_settings.empty()) return;
  if (!run_.role.is_silent) log_(changed_settings_text(run_.resolved.changed_settings));
  record_configuration();
}

void TrainingSession::record_configuration() {
  if (run_.paths) replace_file(run_.paths->config(), configuration());
  if (mlflow_) {
    mlflow_->set_parameters(mlflow_parameters(settings_of(run_.resolved.options, run_.origins),
                                              resolved_settings(run_.resolved)));
  }
}

void TrainingSession::on_sweep(const LearningRateSweep& sweep) {
  if (run_.paths) write_learning_rate_plot(sweep, run_.paths->folder + "/learning_rate.html");
  if (run_.role.is_silent) return;
  print(sweep.suggestion ? c10::str("suggested learning rate: ", *sweep.suggestion, "\n")
                         : "no suggestion: the loss fell at no learning rate\n");
}

std::string TrainingSession::configuration() const {
  return run_configuration(run_.resolved, run_.origins, LOCKSTEP_VERSION);
}

void TrainingSession::stop(int signal) {
  const TrainOptions& options = run_.resolved.options;
  log_(stopped_text(signal) + c10::str(" in epoch ", epoch_, "/", options.epochs));
  const bool is_saved = run_.role.is_saved && stopper_->signal() != 0;
  if (is_saved && run_.role.is_chief) log_(saved_text(options.backup_dir, run_.resume));
  throw Stopped{.signal = signal, .is_saved = is_saved};
}

}  // namespace lockstep::apps
