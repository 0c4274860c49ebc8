#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/metrics/finite_count.h"
#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/state/training_progress.h"
#include "lockstep/training/trainer/evaluation.h"

namespace lockstep {

/// How far a fit() has come. What callbacks see, between steps, in the thread that called fit().
struct FitState {
  /// What is trained, without its types; each has one entry a local replica.
  struct Objects {
    Strategy& strategy;
    std::vector<ModulePointer> modules;
    std::vector<torch::optim::Optimizer*> optimizers;
    std::vector<GradScaler*> scalers;
  };

  virtual ~FitState() = default;

  int64_t epoch = 0;   ///< from 1
  int64_t epochs = 0;  ///< the last one's number
  int64_t step = 0;    ///< of this epoch: done so far
  /// Steps of an epoch; none: only the dataset's end will show.
  std::optional<int64_t> steps_per_epoch;
  int64_t global_step = 0;  ///< steps done in all epochs, those before a resumed one included
  int64_t examples = 0;     ///< trained on in this epoch, over all workers
  double seconds = 0;       ///< that this epoch's training has taken
  double wait_seconds = 0;  ///< of them, waiting for batches
  int64_t test_step = 0;    ///< of a validation: done so far
  int64_t test_examples = 0;
  std::optional<int64_t> test_steps;
  /// At an epoch's end: its loss, metrics, validation_ ones, learning_rate, examples_per_second, data_wait.
  Logs logs;
  /// At an epoch's end: metrics that are no numbers, such as validation_confusion.
  std::vector<std::pair<std::string, torch::Tensor>> tensors;

  const Objects& objects() const { return objects_; }
  Strategy& strategy() const { return objects_.strategy; }
  /// Whether this process writes files and prints: worker 0, or the only one.
  bool is_chief() const;

  /// Ends fit() after this step, or after this epoch where it is called at its end. All workers must call it
  /// at the same step.
  void stop(std::string reason) { stop_reason_ = std::move(reason); }
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  /// The same for a fit that is meant to go on later, in another process: saved, and not at its end.
  void interrupt(std::string reason) {
    is_interrupted_ = true;
    stop(std::move(reason));
  }
  bool is_interrupted() const { return is_interrupted_; }

  /// Of the first parameter group.
  double learning_rate() const;
  /// Of the first parameter group of every local replica's optimizer, from the next step on; the other groups
  /// keep the ratio to it that they had when the fit began.
  void set_learning_rate(double learning_rate) const;

  /// Loss and metrics of this epoch so far, over this process's replicas. Waits for the devices.
  virtual Logs local_logs() const = 0;
  /// The sum of the losses of this epoch so far, and their number, over this process's replicas. Waits for
  /// the devices.
  virtual std::pair<double, double> local_loss() const = 0;
  /// Counts of this process's replicas, or of all workers', which then call it together. Waits for the
  /// devices.
  virtual std::vector<FiniteCount> finite_counts(bool all_workers) const = 0;
  /// Keeps a copy of what steps change, for roll_back(): the states of models, optimizers and scalers, and
  /// what the epoch's loss and metrics have summed up, on the replicas' devices. A copy from before is
  /// dropped. Throws InvalidArgument for a metric that cannot be restored.
  virtual void keep_state() = 0;
  /// Puts back what keep_state() has kept in this epoch, on all workers alike: as if the batches since then
  /// had not been there. The place in the dataset, random streams and learning rates stay as they are.
  virtual void roll_back() = 0;
  int64_t num_roll_backs = 0;  ///< since the fit began
  /// Where a loss or a state is not finite: whether the fit may go on, since it was put right. Null: it ends.
  /// NanGuard sets it.
  std::function<bool(const NotFinite&)> on_not_finite;

  /// Where the training data's next batch is.
  virtual DatasetPosition position() const = 0;

  /// How many epochs are at their end, validation and all, those of an earlier fit included.
  virtual int64_t epochs_done() const = 0;
  /// How far it is, with the epoch's logs as the metrics: what TrainingState saves.
  TrainingProgress progress() const;

  /// Throws InvalidArgument where resume_state() would: for a metric that cannot be restored.
  virtual void check_resumable() = 0;

  /// What this fit goes on from in another process besides what TrainingState holds: how far the epoch is,
  /// what its loss and metrics have summed up, the callbacks' states, the history. For on_save_point().
  /// Tensors share the memory of what they were taken from: write or copy it before the next step. A
  /// collective of the workers. Throws InvalidArgument for a metric that cannot be restored.
  virtual StateValue::Dict resume_state() = 0;
  /// For on_fit_begin(): the fit is to go on from such a state, which the file `source` held, and from the
  /// progress() of that time. Models and optimizers must be as they were then already. With another number of
  /// replicas the sums of the epoch so far are replica 0's.
  void resume_from(TrainingProgress progress, StateValue saved, std::string source) {
    resumed_.emplace(Resumed{std::move(progress), std::move(saved), std::move(source)});
  }

 protected:
  explicit FitState(Objects objects);

  /// What resume_from() was given.
  struct Resumed {
    TrainingProgress progress;
    StateValue saved;
    std::string source;
  };
  const std::optional<Resumed>& resumed() const { return resumed_; }

 private:
  Objects objects_;
  std::optional<Resumed> resumed_;
  std::vector<double> rate_shares_;  // of each parameter group, relative to the first
  std::optional<std::string> stop_reason_;
  bool is_interrupted_ = false;
};

}  // namespace lockstep
