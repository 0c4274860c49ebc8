#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct EarlyStoppingOptions {
  MonitorOptions monitor{};
  int64_t patience = 3;  ///< epochs in a row without a better value before it stops
  /// Puts the best epoch's parameters and buffers back at the end of fit().
  bool restore_best = false;
};

/// Stops a fit whose monitored value no longer gets better. A fit that goes on (FitOptions::steps_done)
/// counts on from the one before it.
class EarlyStopping : public Callback {
 public:
  /// Throws InvalidArgument for a patience below 1.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

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
  std::vector<std::vector<torch::Tensor>> best_;  // of each replica
};

}  // namespace lockstep
