#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct ModelCopy;

struct EarlyStoppingOptions {
  MonitorOptions monitor{};
  /// Stops after this many epochs in a row without a better value. 1 or more; Keras's 0 is 1 here.
  int64_t patience = 3;
  /// Restores the parameters and buffers of the best epoch at the end of fit(). Each replica keeps a copy of
  /// its own until then, of shards if the model is sharded.
  bool restore_best = false;
};

/// Stops a fit when the monitored value no longer improves. A fit that continues an earlier one
/// (FitOptions::steps_done) keeps the earlier best value and count.
///
/// Example:
///
///     auto stopping = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = 5});
///     trainer.fit(batches, {.epochs = 100, .validation = test_batches, .callbacks = {stopping}});
class EarlyStopping : public Callback {
 public:
  /// Throws InvalidArgument if the patience is below 1 or the monitor's min_delta is negative.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});
  ~EarlyStopping() override;

  void on_fit_begin(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "EarlyStopping"; }

  int64_t best_epoch() const { return best_epoch_; }

 private:
  void stop_where_due(FitState& state) const;

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t best_epoch_ = 0;
  int64_t epochs_without_ = 0;
  std::vector<ModelCopy> best_;  // of each local replica
};

}  // namespace lockstep
