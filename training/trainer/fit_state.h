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
#include "lockstep/training/metrics/finite_steps.h"
#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/state/training_progress.h"
#include "lockstep/training/trainer/evaluation.h"

namespace lockstep {

/// Progress of a fit(). Callbacks see it between steps, in the thread that called fit().
struct FitState {
  /// The trained objects, without their types. Each vector has one entry for each local replica.
  struct Objects {
    Strategy& strategy;
    std::vector<ModulePointer> modules;
    std::vector<torch::optim::Optimizer*> optimizers;
    std::vector<GradScaler*> scalers;
  };

  virtual ~FitState() = default;

  int64_t epoch = 0;   ///< Counted from 1.
  int64_t epochs = 0;  ///< Number of the last epoch.
  int64_t step = 0;    ///< Steps done in this epoch.
  /// Steps of an epoch; empty if only the end of the dataset will show it.
  std::optional<int64_t> steps_per_epoch;
  int64_t global_step = 0;  ///< Steps done in all epochs, including those before the fit was resumed.
  int64_t examples = 0;     ///< Examples trained on in this epoch, over all workers.
  double seconds = 0;       ///< Duration of this epoch's training so far.
  double wait_seconds = 0;  ///< Part of `seconds` spent waiting for batches.
  int64_t test_step = 0;    ///< Steps done in this validation.
  int64_t test_examples = 0;
  std::optional<int64_t> test_steps;
  /// Set at the end of an epoch: loss and metrics, those of the validation with the prefix validation_,
  /// learning_rate, examples_per_second and data_wait.
  Logs logs;
  /// Set at the end of an epoch: metrics that are not numbers, such as validation_confusion.
  std::vector<std::pair<std::string, torch::Tensor>> tensors;

  const Objects& objects() const { return objects_; }
  Strategy& strategy() const { return objects_.strategy; }
  /// Returns whether this process is worker 0 or the only one, which writes files and prints.
  bool is_chief() const;

  /// Ends fit() after this step, or after this epoch if called at its end. All workers must call it at the
  /// same step.
  void stop(std::string reason) { stop_reason_ = std::move(reason); }
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  /// Like stop(), for a fit that another process will resume later: its state is saved, and it does not count
  /// as finished.
  void interrupt(std::string reason) {
    is_interrupted_ = true;
    stop(std::move(reason));
  }
  bool is_interrupted() const { return is_interrupted_; }

  /// Returns the learning rate of the first parameter group.
  double learning_rate() const;
  /// Sets the learning rate of the first parameter group of every local replica's optimizer, from the next
  /// step on. Other groups keep the ratio to it that they had when the fit began.
  void set_learning_rate(double learning_rate) const;

  /// Returns loss and metrics of this epoch so far, over this process's replicas. Waits for the devices.
  virtual Logs local_logs() const = 0;
  /// Returns the sum and the number of the losses of this epoch so far, over this process's replicas. Waits
  /// for the devices.
  virtual std::pair<double, double> local_loss() const = 0;
  /// Returns the counts of this process's replicas, or with `all_workers` those of all replicas, which is a
  /// collective. Waits for the devices.
  virtual std::vector<FiniteCount> finite_counts(bool all_workers) const = 0;
  /// Copies everything that steps change, for roll_back(): the states of models, optimizers and scalers, and
  /// the epoch's sums for loss and metrics. The copy is on the replicas' devices and replaces an earlier
  /// one. Throws InvalidArgument if a metric cannot be restored.
  virtual void keep_state() = 0;
  /// Restores the state of the last keep_state() of this epoch, as if the batches since then had never
  /// run. All workers must call it. The position in the dataset, random streams and learning rates do not
  /// change. Throws InvalidArgument if keep_state() was not called in this epoch.
  virtual void roll_back() = 0;
  /// Measures BatchNorm's running statistics again, for weights that a callback has put into the model: each
  /// replica takes the mean over the training batches of one epoch, as PyTorch's update_bn() does. Does
  /// nothing if there are no running statistics. Random streams and the position in the dataset do not
  /// change. All workers must call it, between steps. Throws InvalidArgument if the Trainer has a step of its
  /// own but no TrainerOptions::compute.
  virtual void update_batch_norm() = 0;
  int64_t num_roll_backs = 0;  ///< Number of roll_back() calls since the fit began.
  /// Called if a loss or a state is not finite. Returns whether it was repaired, so that the fit may
  /// continue. If null, the fit ends. NanGuard sets it.
  std::function<bool(const NotFinite&)> on_not_finite;

  /// Returns the names of the logs that this fit sets in every epoch; callbacks may add others. Empty if they
  /// are not known.
  virtual std::vector<std::string> log_names() const { return {}; }
  /// Returns the logs of all finished epochs, including those of the processes that this fit resumes.
  virtual std::vector<Logs> finished_epochs() const { return {}; }

  /// Returns the position of the next batch in the training data.
  virtual DatasetPosition position() const = 0;

  /// Returns the number of finished epochs, including their validation and those of an earlier fit.
  virtual int64_t epochs_done() const = 0;
  /// Returns the progress as TrainingState saves it, with the epoch's logs as its metrics.
  TrainingProgress progress() const;

  /// Throws InvalidArgument if a metric cannot be restored, as resume_state() would.
  virtual void check_resumable() = 0;

  /// Returns everything that another process needs to resume this fit, besides the TrainingState: the
  /// position in the epoch, its sums for loss and metrics, the states of the callbacks, and the history. Call
  /// it in on_save_point(). Its tensors share memory with their sources: write or copy them before the next
  /// step. A collective. Throws InvalidArgument if a metric cannot be restored.
  virtual StateValue::Dict resume_state() = 0;
  /// Resumes the fit from `saved`, a resume_state() that the file `source` held, and from the progress() of
  /// that time. Call it in on_fit_begin(), after restoring models and optimizers. With another number of
  /// replicas, replica 0 gets the epoch's sums so far.
  void resume_from(TrainingProgress progress, StateValue saved, std::string source) {
    resumed_.emplace(Resumed{std::move(progress), std::move(saved), std::move(source)});
  }

 protected:
  explicit FitState(Objects objects);

  /// Arguments of resume_from().
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
