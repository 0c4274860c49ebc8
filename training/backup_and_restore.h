#pragma once

#include <optional>

#include "lockstep/training/backup.h"
#include "lockstep/training/callback.h"

namespace lockstep {

/// Makes a fit go on where an earlier process of it ended, to the step: it saves the model, the optimizers,
/// the scalers, every replica's random stream and buffers, the place in the dataset, what the epoch has
/// summed up so far, the callbacks' states and the history, and restores them as the next fit begins. With as
/// many replicas that fit comes to the same end, bit by bit, as one that was never interrupted; with another
/// number each example still comes exactly once an epoch.
///
/// A fit that StopOnSignal ends is saved after that step. See Backup for what is written, and for what is
/// thrown; a checkpoint that cannot be written at the end of the fit ends it with std::system_error. A state
/// whose losses were not all finite, or that differs between replicas, is not saved: NotFinite and
/// InconsistentReplicas end the fit. Throws InvalidArgument as the fit begins for a metric that has no
/// restore().
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(const BackupOptions& options) : options_(options) {}

  void on_fit_begin(FitState& state) override;
  void on_save_point(FitState& state) override;
  void on_fit_end(FitState& state) override;

 private:
  BackupOptions options_;
  std::optional<Backup> backup_;  // while the fit runs
};

}  // namespace lockstep
