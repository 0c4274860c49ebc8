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

/// Result of fit().
struct History {
  std::vector<Logs> epochs;  ///< Logs of each finished epoch, in order.
  int64_t steps = 0;         ///< Number of steps that this fit made.
  /// Why the fit ended before its last epoch; empty if it did not.
  std::string stop_reason{};
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;

/// Loop of a Trainer's fit(), independent of the types of model and batch. Callbacks see it as a FitState.
///
/// Example:
///
///     History history = trainer.fit(batches, {.epochs = 5});
class FitLoop : public FitState {
 public:
  explicit FitLoop(Objects objects);
  ~FitLoop() override;

  /// Trains from epoch `first_epoch` (counted from 1) to the last, `epochs`.
  History run(int64_t first_epoch, const Callbacks& callbacks);

  int64_t epochs_done() const override { return epochs_done_; }
  std::vector<Logs> finished_epochs() const override { return history_.epochs; }
  void check_resumable() override;
  StateValue::Dict resume_state() override;
  void keep_state() override;
  void roll_back() override;

 protected:
  /// Begins an epoch's training.
  virtual void begin_epoch() = 0;
  /// Takes the next batch. Returns false at the end of the epoch.
  virtual bool next_batch() = 0;
  /// Trains on the batch. Returns its number of examples over all workers.
  virtual int64_t train_step() = 0;
  /// Returns the epoch's loss and metrics over all workers. A collective.
  virtual Evaluation training_results() = 0;
  virtual bool has_validation() const = 0;
  /// Validates, calling `on_step` after every step; ends early if it returns false.
  virtual Evaluation validate(const std::function<bool()>& on_step) = 0;
  /// Returns the mean over this epoch's steps, or nothing if the norm was not computed. A collective.
  virtual std::optional<double> gradient_norm() = 0;
  /// Returns the meters of each local replica.
  virtual std::vector<StepMeters*> meters() = 0;
  /// Returns the number of batches in a pass over the training data, or nothing if it is unknown.
  virtual std::optional<int64_t> dataset_steps() const = 0;
  /// Describes everything that decides which examples come at each step; empty if unknown.
  virtual std::string dataset_description() const = 0;
  /// Returns the dataset epoch of the next pass over the validation data; it determines the order of shuffled
  /// data.
  virtual int64_t validation_epoch() const = 0;
  /// Makes the batch at `position` the next one.
  virtual void go_to(const DatasetPosition& position, int64_t validation_epoch) = 0;

 private:
  /// How far an epoch has come.
  enum class Stage { kBegin, kTraining, kTrained };

  /// Returns whether the epoch's training ran to its end. finish_epoch() does the same for its validation.
  bool train_epoch(const Callbacks& callbacks);
  bool run_steps(const Callbacks& callbacks);
  bool finish_epoch(const Callbacks& callbacks);
  /// A collective. Throws ClusterError if the workers would make different steps.
  void check_same_on_workers() const;
  void call_save_point(const Callbacks& callbacks);
  void resume(const Callbacks& callbacks);
  void log_training();

  Stage stage_ = Stage::kBegin;
  int64_t epochs_done_ = 0;
  const Callbacks* callbacks_ = nullptr;  // while run() is active
  std::unique_ptr<StepSnapshot> kept_;
  History history_;
};

}  // namespace lockstep
