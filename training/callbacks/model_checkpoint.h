#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/state/training_state.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct ModelCheckpointOptions {
  std::string folder;  ///< created if missing
  /// Selects the best epoch. By default it is the one with the lowest validation_loss, or the lowest loss if
  /// there is no validation.
  std::optional<MonitorOptions> monitor{};
  /// Best value so far, if this run continues one that another process began; see TrainingProgress::metrics.
  std::optional<double> best{};
  bool save_best = true;
  bool save_last = true;
  /// Epochs between two saves of `last`. The last epoch of the fit is always saved.
  int64_t every_epochs = 1;
};

/// Saves the best and the last model at the ends of epochs. `best.safetensors` and `last.safetensors` hold
/// the weights for other programs, with the combined buffers of all replicas; `best.pt` and `last.pt` hold
/// all that training needs to resume (TrainingState). A file replaces the previous one only once it is
/// complete. Saving does not affect training. A fit that continues an earlier one (FitOptions::steps_done)
/// keeps the earlier best.
///
/// Worker 0 writes. With several workers the calls are collectives. Throws std::system_error naming a file
/// that cannot be written.
///
/// Example:
///
///     auto checkpoint = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = "checkpoints"});
///     trainer.fit(batches, {.epochs = 5, .validation = test_batches, .callbacks = {checkpoint}});
///     std::cout << "best epoch: " << checkpoint->best_epoch() << '\n';
class ModelCheckpoint : public Callback {
 public:
  /// Throws InvalidArgument if the folder is empty or every_epochs is below 1.
  explicit ModelCheckpoint(const ModelCheckpointOptions& options);

  void on_fit_begin(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "ModelCheckpoint"; }

  /// Returns the epoch saved in best.*; 0 if there is none yet.
  int64_t best_epoch() const { return best_epoch_; }

 private:
  Monitor& monitor(const Logs& logs);
  void save(FitState& state, const std::vector<std::string>& names);

  ModelCheckpointOptions options_;
  std::optional<Monitor> monitor_;
  std::optional<double> resumed_best_;
  std::optional<TrainingState> training_;
  int64_t best_epoch_ = 0;
  int64_t last_epoch_ = 0;  // epoch saved in last.*
  int64_t ended_epoch_ = 0;
};

}  // namespace lockstep
