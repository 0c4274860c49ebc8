#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Checks that all replicas of all workers have bitwise equal parameters and optimizer states. Training keeps
/// them equal; defective memory, a wrong kernel or a change made to one replica only would otherwise go
/// unnoticed. Buffers are not compared, since the statistics of BatchNorm differ between replicas. If devices
/// are mixed, replicas are compared with those on devices of their own type: operators of other types round
/// differently in the optimizer's step.
///
/// Workers exchange a 64-bit digest of each tensor: the sum of its words times odd numbers, modulo 2^64. It
/// always differs if one word differs, and almost always if several do. `modules` and `optimizers` have one
/// entry for each local replica, and each replica's thread reads its own; `optimizers` may be empty. A
/// collective; waits for the devices.
///
/// Throws InconsistentReplicas on all workers, naming the replica that differs from most others and its first
/// tensor that differs. `step` is the step that the message names.
void check_divergence(Strategy& strategy, int64_t step, const std::vector<ModulePointer>& modules,
                      const std::vector<torch::optim::Optimizer*>& optimizers = {});

struct DivergenceCheckOptions {
  /// Number of steps between two checks. The end of the fit is always checked.
  int64_t every_steps = 1000;
};

/// Calls check_divergence() regularly during a fit. Each check reads all parameters and optimizer states
/// once.
///
/// Example:
///
///     auto check = std::make_shared<DivergenceCheck>(DivergenceCheckOptions{.every_steps = 500});
///     trainer.fit(batches, {.callbacks = {check}});
class DivergenceCheck : public Callback {
 public:
  /// Throws InvalidArgument if every_steps is below 1.
  explicit DivergenceCheck(const DivergenceCheckOptions& options = {});
  void on_step_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

 private:
  static void check(FitState& state);

  DivergenceCheckOptions options_;
};

}  // namespace lockstep
