#include "lockstep/apps/shared/session/training_session.h"

#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>

#include "lockstep/apps/shared/command_line/changed_settings.h"
#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/monitoring/mlflow_recording.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/inject_faults.h"
#include "lockstep/training/monitoring/prometheus_metrics.h"

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

/// Adds up the steps of epochs.
class CountSteps : public Callback {
 public:
  explicit CountSteps(TrainedSteps& trained) : trained_(trained) { trained_.waited = 0; }
  void on_epoch_end(FitState& state) override {
    trained_.examples += state.examples;
    trained_.seconds += state.seconds;
    *trained_.waited += state.wait_seconds;
  }

 private:
  TrainedSteps& trained_;
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

std::shared_ptr<ShowProgress> make_progress(const SessionSetting& setting, std::ostream& no_lines) {
  const bool is_silent = setting.role.is_silent;
  auto display = display_of_stderr();
  display.is_silent = is_silent;
  return std::make_shared<ShowProgress>(std::cerr, is_silent ? no_lines : std::cout, display,
                                        setting.progress);
}

}  // namespace

TrainingSession::TrainingSession(SessionSetting setting)
    : setting_(std::move(setting)),
      no_lines_(nullptr),
      progress_(make_progress(setting_, no_lines_)),
      log_([progress = progress_, program = setting_.program](const std::string& text) {
        progress->clear();
        log_line(program, text);
      }) {}

void TrainingSession::add_callbacks() {
  const WorkerRole& role = setting_.role;
  callbacks_ = make_callbacks(log_);
  if (setting_.paths) {
    record_ = make_record(*setting_.paths);
    callbacks_.push_back(record_);
  }
  if (role.is_chief && !choice().mlflow_dir.empty()) {
    mlflow_ = make_mlflow(setting_.program, choice(), choice().run_dir, choice().log_every);
    callbacks_.push_back(mlflow_);
  }
  if (setting_.metrics) callbacks_.push_back(std::make_shared<PrometheusMetrics>(setting_.metrics));
  callbacks_.push_back(progress_);
  callbacks_.push_back(std::make_shared<EpochCounter>(epoch_));
  if (choice().profile_input) {
    input_times_ = std::make_shared<InputTimes>();
    callbacks_.push_back(std::make_shared<CountSteps>(trained_));
  }
  if (auto faults = requested_faults(); !faults.empty())
    callbacks_.insert(callbacks_.begin(), std::make_shared<InjectFaults>(std::move(faults)));
  stopper_ = std::make_shared<StopOnSignal>(setting_.interruption);
  callbacks_.push_back(stopper_);
  if (role.is_saved) {
    callbacks_.push_back(std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = choice().backup_dir.empty() ? "." : choice().backup_dir,
                      .save_every = SaveInterval::parse(choice().save_every),
                      .sharded = choice().shard_backup,
                      .resume = choice().resume,
                      .configuration = configuration(),
                      .on_resume = [this](const std::string& earlier) { on_resume(earlier); },
                      .on_message = log_}));
  }
  callbacks_.push_back(std::make_shared<BeginSteps>(setting_.interruption));
}

void TrainingSession::run() {
  try {
    add_callbacks();
    train_and_finish();
  } catch (const Stopped&) {
    throw;
  } catch (const NotFinite& error) {
    const auto told = not_finite(error.place());
    fail_records(RunStatus::kFailed, told.what());
    throw told;
  } catch (const PeerLost& error) {
    // All workers get signals; another one may have received two and ended at once.
    const bool was_stopped = setting_.interruption.signal() != 0;
    fail_records(was_stopped ? RunStatus::kInterrupted : RunStatus::kFailed, error.what());
    if (!was_stopped) throw;
    stop(setting_.interruption.signal());
  } catch (const std::exception&) {
    fail_records(RunStatus::kFailed, describe_failure(std::current_exception()).message);
    throw;
  }
}

void TrainingSession::fail_records(RunStatus status, const std::string& reason) {
  fail_record(setting_.program, record_.get(), status, reason);
  end_mlflow(setting_.program, mlflow_.get(), setting_.paths, status, reason);
}

void TrainingSession::train_and_finish() {
  const History history = train(callbacks_);
  const bool was_stopped = stopper_->signal() != 0;
  finish_record(record_.get(), history.stop_reason, stopper_->signal());
  end_mlflow(setting_.program, mlflow_.get(), setting_.paths,
             was_stopped ? RunStatus::kInterrupted : RunStatus::kCompleted,
             was_stopped ? signal_name(stopper_->signal()) : history.stop_reason);
  if (input_times_ && !role().is_silent) print_input_profile();
  if (was_stopped) stop(stopper_->signal());
  if (!role().is_silent && has_resumed_ && history.steps == 0) log_(already_finished(history));
}

void TrainingSession::print_input_profile() const {
  print("\n" + input_profile_text(input_profile(*input_times_, name_of_examples(), trained_)));
}

std::string TrainingSession::already_finished(const History& history) const {
  const std::string begin =
      c10::str("this run had already finished: epoch ", history.epochs.size(), " of ", epochs());
  if (!history.stop_reason.empty())
    return begin + ", as it stopped early: " + history.stop_reason +
           "; to train on, raise or leave out --early-stopping";
  return begin + "; to train on, raise " + flag_of_length();
}

void TrainingSession::on_resume(const std::string& earlier_configuration) {
  has_resumed_ = true;
  auto changes = changed_settings(earlier_configuration, settings(), flags());
  const std::string text = changed_settings_text(changes);
  set_changed_settings(std::move(changes));
  if (text.empty()) return;
  if (!role().is_silent) log_(text);
  record_configuration();
}

void TrainingSession::record_configuration() {
  if (setting_.paths) replace_file(setting_.paths->config(), configuration());
  if (mlflow_) mlflow_->set_parameters(mlflow_parameters(settings(), resolved_settings()));
}

void TrainingSession::stop(int signal) {
  log_(stopped_text(signal) + c10::str(" in epoch ", epoch_, "/", epochs()));
  const bool is_saved = role().is_saved && stopper_->signal() != 0;
  if (is_saved && role().is_chief) log_(saved_text(choice().backup_dir, setting_.resume));
  throw Stopped{.signal = signal, .is_saved = is_saved};
}

}  // namespace lockstep::apps
