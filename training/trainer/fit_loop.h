#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/training/trainer/callback.h"
#include "lockstep/training/trainer/step_meters.h"

namespace lockstep {

class StepSnapshot;

/// What fit() came to.
struct History {
  std::vector<Logs> epochs;  ///< each finished epoch's logs, in order
  int64_t steps = 0;         ///< done
  /// Why it ended before its last epoch; empty: it did not.
  std::string stop_reason{};
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;

/// A Trainer's fit() without its types.
class FitLoop : public FitState {
 public:
  explicit FitLoop(Objects objects);
  ~FitLoop() override;

  /// Trains from epoch `first_epoch` (from 1) to the last, `epochs`.
  History run(int64_t first_epoch, const Callbacks& callbacks);

  int64_t epochs_done() const override { return epochs_done_; }
  void check_resumable() override;
  StateValue::Dict resume_state() override;
  void keep_state() override;
  void roll_back() override;

 protected:
  /// Begins an epoch's training.
  virtual void begin_epoch() = 0;
  /// Takes the next batch; false at the epoch's end.
  virtual bool next_batch() = 0;
  /// Trains on it, and returns its examples over all workers.
  virtual int64_t train_step() = 0;
  /// The epoch's loss and metrics over all workers: a collective.
  virtual Evaluation training_results() = 0;
  virtual bool has_validation() const = 0;
  /// Calls `on_step` after every step, and ends early where it returns false.
  virtual Evaluation validate(const std::function<bool()>& on_step) = 0;
  /// The mean over this epoch's steps; nothing where it was not taken. A collective.
  virtual std::optional<double> gradient_norm() = 0;
  /// Of each local replica.
  virtual std::vector<StepMeters*> meters() = 0;
  /// Batches of a pass over the training data; nothing where that is not known.
  virtual std::optional<int64_t> dataset_steps() const = 0;
  /// What decides which of its examples come at a step; empty where that is not known.
  virtual std::string dataset_description() const = 0;
  /// The pass over the validation data that comes next, each in an order of its own where it is shuffled.
  virtual int64_t validation_epoch() const = 0;
  /// The next batch is the one at `position`.
  virtual void go_to(const DatasetPosition& position, int64_t validation_epoch) = 0;

 private:
  /// How far an epoch has come.
  enum class Stage { kBegin, kTraining, kTrained };

  /// Whether the epoch's training came to its end, and its validation.
  bool train_epoch(const Callbacks& callbacks);
  bool run_steps(const Callbacks& callbacks);
  bool finish_epoch(const Callbacks& callbacks);
  void call_save_point(const Callbacks& callbacks);
  void resume(const Callbacks& callbacks);
  void log_training();

  Stage stage_ = Stage::kBegin;
  int64_t epochs_done_ = 0;
  const Callbacks* callbacks_ = nullptr;  // while it runs
  std::unique_ptr<StepSnapshot> kept_;
  History history_;
};

}  // namespace lockstep
