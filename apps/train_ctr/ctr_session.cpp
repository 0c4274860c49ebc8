#include "lockstep/apps/train_ctr/ctr_session.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/train_ctr/ctr_settings.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"

namespace lockstep::apps {
namespace {

void log_ctr(const std::string& text) {
  log_line("train_ctr", text);
}

std::string record_title(const PreparedCtr& prepared) {
  const std::string& replicas = prepared.facts.replicas;
  return "train_ctr: " + ctr_model_name(prepared.options.model) + " by " +
         replicas.substr(0, replicas.find(','));
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
      backup_(make_ctr_backup(prepared_.strategy, prepared_.options, training.objects(), log_ctr)),
      metrics_(prepared_.metrics, prepared_.options),
      printer_(std::make_unique<Printer>(prepared_.options)) {
  CtrFacts& facts = prepared_.facts;
  facts.first_step = next_ = backup_->first_step();
  if (prepared_.paths) {
    replace_file(prepared_.paths->config(),
                 ctr_configuration_json(prepared_.options, facts, prepared_.origins, LOCKSTEP_VERSION));
    record_ = std::make_unique<CtrRecord>(
        *prepared_.paths, prepared_.strategy, training, next_,
        CtrRecordOptions{.title = record_title(prepared_),
                         .settings = ctr_settings(prepared_.options, prepared_.origins),
                         .log_every = prepared_.options.log_every,
                         .hosts = prepared_.hosts});
  }
  if (!is_silent_) print(ctr_configuration_text(prepared_.options, facts) + "\n");
}

CtrSession::~CtrSession() = default;

RecordRun* CtrSession::recorder() {
  return record_ ? &record_->recorder() : nullptr;
}

void CtrSession::run() {
  try {
    train_to_end();
  } catch (const Stopped&) {
    throw;
  } catch (const PeerLost& error) {
    // All processes get signals; another one may have received two and ended at once.
    const bool was_stopped = prepared_.interruption.signal() != 0;
    fail_record("train_ctr", recorder(), was_stopped ? RunStatus::kInterrupted : RunStatus::kFailed,
                error.what());
    if (!was_stopped) throw;
    if (!is_silent_) log_ctr(stopped_text(prepared_.interruption.signal()));
    throw Stopped{.signal = prepared_.interruption.signal(), .is_saved = false};
  } catch (const std::exception&) {
    fail_record("train_ctr", recorder(), RunStatus::kFailed,
                describe_failure(std::current_exception()).message);
    throw;
  }
}

void CtrSession::train_to_end() {
  const CtrOptions& options = prepared_.options;
  agreement_ =
      std::make_unique<StopAgreement>(prepared_.strategy, [this] { return prepared_.interruption.signal(); });
  prepared_.interruption.begin_steps();
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
  if (record_) record_->end_steps();
  finish_record(recorder(), "", 0);
  if (!is_silent_) {
    result.best = training_.best_scores();
    print("\n" + ctr_result_text(result, prepared_.facts));
  }
  prepared_.strategy.end();
}

void CtrSession::train_until(int64_t end) {
  printer_->begin();
  metrics_.begin();
  if (record_) record_->begin_epoch();
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
  if (metrics_.is_on()) metrics_.step_done(loss, training_.result());
  if (record_) record_->step_done(step, loss);
  backup_->steps_done(next_);
  signal_ = agreement_->should_stop();
  return signal_ == 0;
}

CtrScores CtrSession::test() {
  const auto scores = training_.test();
  metrics_.set_test_scores(scores);
  if (record_) record_->tested(scores);
  return scores;
}

void CtrSession::stop() {
  const CtrOptions& options = prepared_.options;
  if (record_) record_->end_steps();
  finish_record(recorder(), "", signal_);
  if (!is_silent_) log_ctr(stopped_text(signal_) + c10::str(" after step ", next_));
  if (!is_silent_ && !options.backup_dir.empty()) log_ctr(saved_text(options.backup_dir, prepared_.resume));
  prepared_.strategy.end();
  throw Stopped{.signal = signal_, .is_saved = !options.backup_dir.empty()};
}

}  // namespace lockstep::apps
