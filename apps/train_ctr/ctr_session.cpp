#include "lockstep/apps/train_ctr/ctr_session.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/apps/shared/command_line/changed_settings.h"
#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/kept_order.h"
#include "lockstep/apps/shared/monitoring/mlflow_recording.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_ctr/ctr_settings.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"

namespace lockstep::apps {
namespace {

void log_ctr(const std::string& text) {
  log_line("train_ctr", text);
}

/// The file next to the checkpoints that names the MLflow run that a later start continues.
std::string mlflow_note(const CtrOptions& options) {
  return options.backup_dir + "/mlflow_run";
}

/// Returns the id of the run that an earlier start began; empty if none is known.
std::string earlier_mlflow_run(const CtrOptions& options) {
  if (options.resume != "auto") return "";
  constexpr size_t kLongestNote = 256;
  try {
    std::istringstream note(RegularFile(mlflow_note(options)).read_start(kLongestNote));
    std::string id;
    note >> id;
    return id;
  } catch (const NotARegularFile& other) {
    throw CheckpointError(other.what());
  } catch (const std::system_error&) {
    return "";  // an earlier start used no MLflow
  }
}

void note_mlflow_run(const CtrOptions& options, const std::string& id) {
  if (!options.backup_dir.empty() && earlier_mlflow_run(options) != id)
    replace_file(mlflow_note(options), id + "\n");
}

}  // namespace

/// Prints the progress of the steps.
class CtrSession::Printer {
 public:
  explicit Printer(const CtrOptions& options) : options_(options) {}

  void step_done(int64_t step, double loss, bool is_silent) {
    loss_ += loss;
    ++steps_;
    if ((step + 1) % options_.log_every != 0 && step + 1 != options_.steps) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto rows = static_cast<double>(steps_ * options_.global_batch_size);
    if (!is_silent)
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
  using Clock = std::chrono::steady_clock;

  const CtrOptions& options_;
  Clock::time_point begin_ = Clock::now();
  int64_t steps_ = 0;
  double loss_ = 0;
};

CtrSession::CtrSession(PreparedCtr prepared, CtrTraining& training)
    : prepared_(std::move(prepared)),
      training_(training),
      is_silent_(prepared_.options.quiet || !prepared_.is_chief),
      backup_(make_backup()),
      metrics_(prepared_.metrics, prepared_.options, prepared_.strategy),
      printer_(std::make_unique<Printer>(prepared_.options)) {
  prepared_.facts.first_step = next_ = backup_->first_step();
  make_records();
  if (!is_silent_) print(ctr_configuration_text(prepared_.options, prepared_.facts) + "\n");
}

CtrSession::~CtrSession() = default;

std::unique_ptr<CtrBackup> CtrSession::make_backup() {
  const CtrOptions& options = prepared_.options;
  const std::string configuration =
      ctr_configuration_json(options, prepared_.facts, prepared_.origins, LOCKSTEP_VERSION);
  const auto on_resume = [this, configuration](const std::string& earlier) {
    require_kept_order(earlier, configuration);
    auto& changes = prepared_.facts.changed_settings;
    changes = changed_settings(earlier, ctr_settings(prepared_.options, prepared_.origins),
                               ctr_flags(/*strategies=*/{}));
    if (!changes.empty() && !is_silent_) log_ctr(changed_settings_text(changes));
  };
  return make_ctr_backup(prepared_.strategy, options, training_.objects(),
                         {.configuration = configuration, .log = log_ctr, .on_resume = on_resume});
}

void CtrSession::make_records() {
  const CtrOptions& options = prepared_.options;
  const auto settings = ctr_settings(options, prepared_.origins);
  Callbacks recorders;
  if (prepared_.paths) {
    replace_file(prepared_.paths->config(),
                 ctr_configuration_json(options, prepared_.facts, prepared_.origins, LOCKSTEP_VERSION));
    // A histogram of every parameter would read whole tables after each test.
    RecordRunOptions recorded{
        .title = record_title("train_ctr", ctr_model_name(options.model), prepared_.facts.replicas),
        .log_every = options.log_every,
        .histograms = false,
        .examples = "rows",
        .hosts = prepared_.hosts,
        .began = prepared_.began};
    add_settings(settings, recorded);
    recorder_ = std::make_shared<RecordRun>(*prepared_.paths, recorded);
    recorders.push_back(recorder_);
  }
  if (prepared_.is_chief && !options.mlflow_dir.empty()) {
    mlflow_ = make_mlflow("train_ctr", options, options.run_dir, options.log_every);
    mlflow_->set_parameters(mlflow_parameters(settings, ctr_resolved_settings(prepared_.facts)));
    recorders.push_back(mlflow_);
  }
  if (recorders.empty()) return;
  record_ = std::make_unique<CtrRecord>(prepared_.strategy, training_, next_, std::move(recorders));
  if (mlflow_ && next_ > 0) mlflow_->resume(earlier_mlflow_run(options));
}

void CtrSession::finish_records() {
  if (record_) record_->end_steps();
  finish_record(recorder_.get(), "", signal_);
  end_mlflow("train_ctr", mlflow_.get(), prepared_.paths,
             signal_ == 0 ? RunStatus::kCompleted : RunStatus::kInterrupted,
             signal_ == 0 ? "" : signal_name(signal_));
}

void CtrSession::fail_records(RunStatus status, const std::string& reason) {
  fail_record("train_ctr", recorder_.get(), status, reason);
  end_mlflow("train_ctr", mlflow_.get(), prepared_.paths, status, reason);
}

void CtrSession::run() {
  try {
    train_to_end();
  } catch (const Stopped&) {
    throw;
  } catch (const PeerLost& error) {
    // All processes get signals; another one may have received two and ended at once.
    const bool was_stopped = prepared_.interruption.signal() != 0;
    fail_records(was_stopped ? RunStatus::kInterrupted : RunStatus::kFailed, error.what());
    if (!was_stopped) throw;
    if (!is_silent_) log_ctr(stopped_text(prepared_.interruption.signal()));
    throw Stopped{.signal = prepared_.interruption.signal(), .is_saved = false};
  } catch (const std::exception&) {
    fail_records(RunStatus::kFailed, describe_failure(std::current_exception()).message);
    throw;
  }
}

void CtrSession::train_to_end() {
  const CtrOptions& options = prepared_.options;
  agreement_ =
      std::make_unique<StopAgreement>(prepared_.strategy, [this] { return prepared_.interruption.signal(); });
  prepared_.interruption.begin_steps();
  if (next_ > 0 && next_ >= options.steps && !is_silent_)
    log_ctr(c10::str("this run had already finished: step ", next_, " of ", options.steps,
                     "; to train on, raise --steps"));
  const int64_t every = options.test_every > 0 ? options.test_every : options.steps;
  while (next_ < options.steps && signal_ == 0) {
    train_until(std::min(options.steps, (next_ / every + 1) * every));
    if (signal_ != 0 || next_ == options.steps) break;
    const auto scores = test();
    if (!is_silent_)
      print(c10::str("step ", next_, "/", options.steps, "  test: ", ctr_scores_text(scores), "\n"));
  }
  backup_->finish(next_);
  if (signal_ != 0) stop();
  auto result = training_.result();
  result.scores = test();
  finish_records();
  if (!is_silent_) {
    result.best = training_.best_scores();
    print("\n" + ctr_result_text(result, prepared_.facts));
    // Workers of parameter servers make the batches, and each of them prints its own profile.
    const auto profile = training_.worker_times() == nullptr ? training_.input_profile() : std::nullopt;
    if (profile) print("\n" + input_profile_text(*profile));
  }
  prepared_.strategy.end();
}

void CtrSession::train_until(int64_t end) {
  printer_->begin();
  metrics_.begin();
  if (record_) record_->begin_epoch();
  if (mlflow_) note_mlflow_run(prepared_.options, mlflow_->run()->id());
  try {
    training_.train(next_, end,
                    {.on_step = [this](int64_t step, double loss) { return step_done(step, loss); }});
  } catch (const ClosureCancelled&) {
    // The signal has also reached all workers, and they left before this step's closures.
    signal_ = prepared_.interruption.signal();
    if (signal_ == 0) throw;
  }
}

bool CtrSession::step_done(int64_t step, double loss) {
  next_ = step + 1;
  printer_->step_done(step, loss, is_silent_);
  if (metrics_.is_on()) metrics_.step_done(loss, counts());
  if (record_) record_->step_done(step, loss);
  backup_->steps_done(next_);
  signal_ = agreement_->should_stop();
  return signal_ == 0;
}

CtrCounts CtrSession::counts() const {
  CtrCounts counts{.rows = training_.rows(), .data_wait_seconds = training_.data_wait_seconds()};
  if (const auto* times = training_.worker_times()) {
    counts.workers =
        WorkerSeconds{.computing = times->computing, .waiting = times->waiting, .idle = times->idle};
  }
  return counts;
}

CtrScores CtrSession::test() {
  const auto scores = training_.test();
  metrics_.set_test_scores(scores);
  if (record_) record_->tested(scores);
  return scores;
}

void CtrSession::stop() {
  const CtrOptions& options = prepared_.options;
  finish_records();
  if (!is_silent_) log_ctr(stopped_text(signal_) + c10::str(" after step ", next_));
  if (!is_silent_ && !options.backup_dir.empty()) log_ctr(saved_text(options.backup_dir, prepared_.resume));
  prepared_.strategy.end();
  throw Stopped{.signal = signal_, .is_saved = !options.backup_dir.empty()};
}

}  // namespace lockstep::apps
