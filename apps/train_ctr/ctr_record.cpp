#include "lockstep/apps/train_ctr/ctr_record.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "lockstep/training/trainer/fit_state.h"

namespace lockstep::apps {
namespace {

using RecordClock = std::chrono::steady_clock;

FitState::Objects objects_of(Strategy& strategy, CtrTraining& training) {
  const CtrObjects objects = training.objects();
  return {.strategy = strategy,
          .modules = {objects.model.primary().ptr()},
          .optimizers = {objects.network_optimizer.primary().get()},
          .scalers = {}};
}

}  // namespace

/// The training as callbacks see it.
class CtrRecord::Progress : public FitState {
 public:
  Progress(Strategy& strategy, CtrTraining& training, int64_t first_step)
      : FitState(objects_of(strategy, training)), training_(training) {
    global_step = first_step;
  }

  void begin_epoch() {
    ++epoch;
    step = examples = 0;
    loss_ = 0;
    rows_before_ = training_.rows();
    waited_before_ = training_.data_wait_seconds();
    began_ = RecordClock::now();
    seconds = wait_seconds = 0;
    logs = {};
  }
  void step_done(int64_t made, double loss) {
    global_step = made + 1;
    ++step;
    loss_ += loss;
    examples = training_.rows() - rows_before_;
    seconds = std::chrono::duration<double>(RecordClock::now() - began_).count();
    wait_seconds = training_.data_wait_seconds() - waited_before_;
  }
  void tested(const CtrScores& scores) {
    if (step > 0) logs.set("loss", loss_ / static_cast<double>(step));
    logs.set("validation_loss", scores.log_loss);
    logs.set("validation_auc", scores.auc);
    logs.set("learning_rate", learning_rate());
    if (seconds > 0) {
      logs.set("examples_per_second", static_cast<double>(examples) / seconds);
      logs.set("data_wait", wait_seconds / seconds);
    }
  }

  std::pair<double, double> local_loss() const override { return {loss_, static_cast<double>(step)}; }
  Logs local_logs() const override { return logs; }
  int64_t epochs_done() const override { return epoch; }
  DatasetPosition position() const override { return {.epoch = 0, .step = global_step}; }
  // A record needs none of these.
  std::vector<FiniteCount> finite_counts(bool) const override { return {}; }
  void keep_state() override { refuse(); }
  void roll_back() override { refuse(); }
  void update_batch_norm() override { refuse(); }
  void check_resumable() override { refuse(); }
  StateValue::Dict resume_state() override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw std::logic_error("[CtrRecord] expected a callback that records only");
  }

  CtrTraining& training_;
  double loss_ = 0;  // of this epoch's steps, summed
  int64_t rows_before_ = 0;
  double waited_before_ = 0;
  RecordClock::time_point began_;
};

CtrRecord::CtrRecord(Strategy& strategy, CtrTraining& training, int64_t first_step, Callbacks recorders)
    : recorders_(std::move(recorders)),
      progress_(std::make_unique<Progress>(strategy, training, first_step)) {
  for (const auto& recorder : recorders_) recorder->on_fit_begin(*progress_);
}

CtrRecord::~CtrRecord() = default;

void CtrRecord::begin_epoch() {
  progress_->begin_epoch();
  for (const auto& recorder : recorders_) recorder->on_epoch_begin(*progress_);
}

void CtrRecord::step_done(int64_t step, double loss) {
  progress_->step_done(step, loss);
  for (const auto& recorder : recorders_) recorder->on_step_end(*progress_);
}

void CtrRecord::tested(const CtrScores& scores) {
  if (progress_->epoch == 0) begin_epoch();  // resumed after the last step
  progress_->tested(scores);
  for (const auto& recorder : recorders_) recorder->on_epoch_end(*progress_);
}

void CtrRecord::end_steps() {
  for (const auto& recorder : recorders_) recorder->on_fit_end(*progress_);
}

}  // namespace lockstep::apps
