#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Compares the parameters and the optimizers' states of all replicas of all workers, which training keeps
/// equal to the bit: a defective memory, a wrong kernel or a change that was made to one replica alone would
/// go unnoticed for days. Buffers are left out: those of BatchNorm are each replica's own.
///
/// Of each tensor a number of 64 bits travels, the sum of its words times odd numbers modulo 2^64: where one
/// word differs it always does, and where several do unless by a coincidence. `modules` and `optimizers`,
/// which may be left out, are one each for every local replica, and read by its thread. A collective, which
/// waits for the devices.
///
/// Throws InconsistentReplicas on all workers, naming the replica that differs from most others and its first
/// tensor that does; `step` is what the message calls this moment.
void check_divergence(Strategy& strategy, int64_t step, const std::vector<ModulePointer>& modules,
                      const std::vector<torch::optim::Optimizer*>& optimizers = {});

struct DivergenceCheckOptions {
  /// Compares after so many steps, besides the end of the fit.
  int64_t every_steps = 1000;
};

/// Calls check_divergence() now and then, which costs a pass over the state.
class DivergenceCheck : public Callback {
 public:
  /// Throws InvalidArgument for less than one step.
  explicit DivergenceCheck(const DivergenceCheckOptions& options = {});
  void on_step_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

 private:
  static void check(FitState& state);

  DivergenceCheckOptions options_;
};

}  // namespace lockstep
