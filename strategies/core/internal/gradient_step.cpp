#include "lockstep/strategies/core/internal/gradient_step.h"

#include "lockstep/runtime/gradients/gradient_clipping.h"
#include "lockstep/runtime/precision/grad_scaler.h"

namespace lockstep {

at::Tensor clip_and_step(OptimizerGroup& group, int replica, torch::optim::Optimizer& optimizer,
                         const ApplyOptions& options, const std::function<void()>& take_step) {
  at::Tensor norm;
  const auto clip = [&] {
    if (options.clip_norm) norm = clip_gradients(parameters_of(optimizer), *options.clip_norm);
  };
  if (options.scaler != nullptr) {
    if (options.scaler->is_enabled()) group.note_scaler(replica);
    // The scalers of all replicas look at the same sums, bit for bit, so all of them decide the same way.
    options.scaler->step(optimizer, clip, take_step);
  } else {
    clip();
    take_step ? take_step() : static_cast<void>(optimizer.step());
  }
  return norm;
}

}  // namespace lockstep
