#pragma once

#include "lockstep/runtime/graphs/fingerprint.h"

namespace lockstep {

/// Second base class, next to torch::optim::Optimizer, of optimizers whose step() can be part of a CUDA
/// graph: it keeps its counts on the device and never waits. FusedAdam, FusedAdamW and FusedSgd derive from
/// it.
///
/// Example:
///
///     struct MySgd : torch::optim::SGD, CapturableStep {
///       using SGD::SGD;
///       void describe_step(Fingerprint& fingerprint) const override { fingerprint.add_identity(rate); }
///       void refresh_step() override { rate.fill_(param_groups()[0].options().get_lr()); }
///       torch::Tensor rate = torch::zeros({}, torch::kCUDA);
///     };
class CapturableStep {
 public:
  virtual ~CapturableStep() = default;

  /// Adds all that a captured step repeats even if the optimizer has changed since: its parameters, the
  /// values of options that are not tensors, and the memory of its state.
  virtual void describe_step(Fingerprint& fingerprint) const = 0;
  /// Updates the tensors from which steps read options, such as the learning rate, to the current options, on
  /// the current stream and without waiting for the device. Called before a capture and before each replay.
  virtual void refresh_step() = 0;
};

}  // namespace lockstep
