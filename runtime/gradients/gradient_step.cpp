#include "lockstep/runtime/gradients/gradient_step.h"

#include <optional>

#include "lockstep/runtime/precision/grad_scaler.h"

namespace lockstep {

at::Tensor clip_and_step(OptimizerGroup& group, int replica, torch::optim::Optimizer& optimizer,
                         const ApplyOptions& options, const std::function<void()>& take_step) {
  ShardedParameters* const sharded = group.sharded(replica);
  const bool is_divided = group.is_divided();
  at::Tensor norm;
  const auto step_now = [&] { take_step ? take_step() : static_cast<void>(optimizer.step()); };
  auto step = take_step;
  if (auto* on_host = group.host_state(replica)) step = [&, on_host] { on_host->step(optimizer, step_now); };
  {
    std::optional<ShardedParameters::Step> slices;
    if (sharded != nullptr) slices.emplace(*sharded);
    const auto clip = [&] {
      if (options.clip_norm) norm = group.clip(replica, *options.clip_norm);
      if (is_divided) group.begin_sharded_step(replica);
    };
    if (options.scaler != nullptr) {
      if (options.scaler->is_enabled()) group.note_scaler(replica);
      // The scalers of all replicas look at the same sums, bit for bit, so all of them decide the same way.
      // Of sharded sums each sees a part.
      std::function<void(const at::Tensor&)> agree;
      if (is_divided) agree = [&](const at::Tensor& found) { group.agree_on_found_inf(replica, found); };
      options.scaler->step(optimizer, clip, step, agree);
    } else {
      clip();
      step ? step() : step_now();
    }
  }
  if (sharded != nullptr) sharded->gather();
  return norm;
}

}  // namespace lockstep
