#pragma once

#include "lockstep/runtime/graphs/fingerprint.h"

namespace lockstep {

/// Beside torch::optim::Optimizer, a base of optimizers whose step() can be part of a CUDA graph: it keeps
/// its counts on the device and waits for nothing. FusedAdam, FusedAdamW and FusedSgd are such.
class CapturableStep {
 public:
  virtual ~CapturableStep() = default;

  /// Adds what a captured step repeats however the optimizer has changed since: its parameters, the values of
  /// options that are no tensors, where its state lies.
  virtual void describe_step(Fingerprint& fingerprint) const = 0;
  /// Brings the tensors that steps read options from, such as the learning rate, to the options' present
  /// values, on the current stream and without waiting for the device. Called before a capture and before
  /// each replay.
  virtual void refresh_step() = 0;
};

}  // namespace lockstep
