#pragma once

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Logs the L2 norm of the summed gradients, before clipping, as gradient_norm: the mean over the epoch's
/// steps.
///
/// Example:
///
///     const auto history = trainer.fit(batches, {.callbacks = {std::make_shared<GradientNorm>()}});
///     const auto norm = history.epochs.back().find("gradient_norm");
class GradientNorm : public Callback {
 public:
  bool needs_gradient_norm() const override { return true; }
};

}  // namespace lockstep
