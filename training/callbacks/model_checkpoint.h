#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/state/training_state.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct ModelCheckpointOptions {
  std::string folder;  ///< made where it is missing
  /// By which number an epoch is the best; none: validation_loss, without validation loss.
  std::optional<MonitorOptions> monitor{};
  /// The best value so far, where a run goes on that another process began; see TrainingProgress::metrics.
  std::optional<double> best{};
  bool save_best = true;
  bool save_last = true;
  int64_t every_epochs = 1;  ///< for the last one; the fit's very last epoch is saved in any case
};

/// Saves the model at the ends of epochs, the best one and the last one: `best.safetensors` and
/// `last.safetensors` hold the weights for use elsewhere, with the mean of all replicas' buffers, `best.pt`
/// and `last.pt` all that training goes on from (TrainingState). A file takes the place of the one before it
/// only when it is whole. Saving changes nothing of the run. A fit that goes on (FitOptions::steps_done)
/// keeps the best of the fit before it.
///
/// Worker 0 writes; with several workers its calls are collectives. Throws std::system_error naming a file
/// that cannot be written.
class ModelCheckpoint : public Callback {
 public:
  /// Throws InvalidArgument without a folder, and for every_epochs below 1.
  explicit ModelCheckpoint(const ModelCheckpointOptions& options);

  void on_fit_begin(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "ModelCheckpoint"; }

  /// The epoch that best.* are of; 0: none yet.
  int64_t best_epoch() const { return best_epoch_; }

 private:
  Monitor& monitor(const Logs& logs);
  void save(FitState& state, const std::vector<std::string>& names);

  ModelCheckpointOptions options_;
  std::optional<Monitor> monitor_;
  std::optional<double> resumed_best_;
  std::optional<TrainingState> training_;
  int64_t best_epoch_ = 0;
  int64_t last_epoch_ = 0;  // that last.* are of
  int64_t ended_epoch_ = 0;
};

}  // namespace lockstep
