#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Beside torch::optim::Optimizer, a base of optimizers that look on their own device whether to step: a
/// GradScaler then need not wait for the device. FusedAdam, FusedAdamW and FusedSgd are such.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;

  /// Optimizer::step(), if `found_inf`, a float32 scalar on any device, is 0. If it is 1, parameters,
  /// moments and counts of steps stay as they are.
  virtual void step_unless(const at::Tensor& found_inf) = 0;
};

}  // namespace lockstep
