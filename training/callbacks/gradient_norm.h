#pragma once

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Takes the L2 norm of the summed gradients at every step, before clipping: logs have its mean over the
/// epoch's steps as gradient_norm.
class GradientNorm : public Callback {
 public:
  bool needs_gradient_norm() const override { return true; }
};

}  // namespace lockstep
