#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// As torch.amp.GradScaler's.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without an infinity after which the scale grows
  bool enabled = true;             ///< false: losses and gradients stay as they are
};

/// What a checkpoint keeps of a GradScaler.
struct GradScalerState {
  double scale = 0;
  int64_t growth_tracker = 0;  ///< steps without an infinity since the scale last changed
};

/// Scales losses up so that small gradients survive in float16, as torch.amp.GradScaler. One a replica, made
/// in scope; where the gradients are summed over the replicas, all scalers skip the same steps and keep the
/// same scale, for all look at the same sums:
///
///     auto scaler = strategy.scope([](ReplicaContext& replica) { return GradScaler(replica.device()); });
///
///     scaler.scale(loss).backward();                            // in the replica function
///     replica.apply_gradients(optimizer, {.scaler = &scaler});  // no step where a sum is not finite
///     scaler.update();                                          // once a step, after all optimizers
///
/// Nothing here waits for a device unless it says so. After a failed run, hand it to restore_consistency().
/// Used by its replica's thread only.
class GradScaler {
 public:
  /// Throws InvalidArgument for options out of range.
  explicit GradScaler(c10::Device device, const GradScalerOptions& options = {});
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  bool is_enabled() const { return options_.enabled; }

  /// `loss` times the scale, differentiable. Every loss of a step, on every replica.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale in place, for callers who look at them
  /// or change them before the step: call it once a step at most, with several replicas after
  /// reduce_gradients(). Throws InvalidArgument where the gradients are unscaled already, or stepped with,
  /// and for float16 gradients: parameters stay in float32 under autocast.
  void unscale(const torch::optim::Optimizer& optimizer);

  /// Unscales the gradients unless unscale() has, calls `change_gradients`, and steps the optimizer if all
  /// gradients were finite after unscaling. apply_gradients() calls it. Waits for the device where the
  /// optimizer is no SkippableStep. Throws InvalidArgument as unscale().
  ///
  /// With `take_step`, that is called in place of the optimizer's own step.
  void step(torch::optim::Optimizer& optimizer, const std::function<void()>& change_gradients = {},
            const std::function<void()>& take_step = {});

  /// After every optimizer's step: multiplies the scale by backoff_factor if any of them was skipped, by
  /// growth_factor after growth_interval steps without one, unless it would overflow. Throws InvalidArgument
  /// where nothing was stepped or unscaled since the last update.
  void update();

  /// 1 if not enabled. Waits for the device.
  double get_scale() const;
  /// For a checkpoint, after update(). Waits for the device.
  GradScalerState state() const;
  /// Continues from there, and forgets what was unscaled since the last update(). Throws InvalidArgument for
  /// values that state() never gives.
  void load_state(const GradScalerState& state);

  /// Calls `visit(tensor)` for the tensors of the state, which are changed in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(scale_);
    visit(growth_tracker_);
  }

 private:
  /// What is known of an optimizer's gradients since the last update().
  struct Record {
    const torch::optim::Optimizer* optimizer;
    at::Tensor found_inf;
    bool has_stepped;
  };

  Record* find(const torch::optim::Optimizer& optimizer);
  at::Tensor unscale_gradients(const torch::optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  at::Tensor scale_;           // float32 scalar, on the device
  at::Tensor growth_tracker_;  // int32 scalar, on the device
  std::vector<Record> records_;
};

}  // namespace lockstep
