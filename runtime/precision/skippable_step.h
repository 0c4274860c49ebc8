#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Second base class, next to torch::optim::Optimizer, of optimizers that decide on their own device whether
/// to step, so that a GradScaler need not wait for the device. FusedAdam, FusedAdamW and FusedSgd derive from
/// it.
///
/// Example:
///
///     struct MySgd : torch::optim::SGD, SkippableStep {
///       using SGD::SGD;
///       void step_unless(const at::Tensor& found_inf) override { my_kernel(param_groups(), found_inf); }
///     };
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;

  /// Takes a step if `found_inf`, a float32 scalar on any device, is 0. If it is 1, parameters, moments and
  /// counts of steps stay unchanged.
  virtual void step_unless(const at::Tensor& found_inf) = 0;
};

}  // namespace lockstep
