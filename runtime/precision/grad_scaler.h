#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

/// Options with the meaning and defaults of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< Steps without an infinity after which the scale grows.
  bool enabled = true;             ///< If false, losses and gradients are left unchanged.
};

/// State of a GradScaler for a checkpoint.
struct GradScalerState {
  double scale = 0;
  int64_t growth_tracker = 0;  ///< Steps without an infinity since the scale changed.
};

/// Scales losses up so that small gradients survive in float16, like torch.amp.GradScaler. Make one for each
/// replica, in Strategy::scope(). If gradients are summed over the replicas, all scalers see the same sums,
/// so they skip the same steps and keep the same scale.
///
/// Example:
///
///     auto scaler = strategy.scope([](ReplicaContext& replica) { return GradScaler(replica.device()); });
///
///     scaler.scale(loss).backward();                            // in the replica function
///     replica.apply_gradients(optimizer, {.scaler = &scaler});  // no step if a sum is not finite
///     scaler.update();                                          // once a step, after all optimizers
///
/// Methods wait for a device only if they say so. After a failed run, pass it to restore_consistency(). Only
/// its replica's thread may use it.
class GradScaler {
 public:
  /// Throws InvalidArgument if an option is out of range.
  explicit GradScaler(c10::Device device, const GradScalerOptions& options = {});
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  bool is_enabled() const { return options_.enabled; }

  /// Returns `loss` times the scale, differentiable. Call it for every loss of a step, on every replica.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale in place. Call it if you look at
  /// gradients or change them before the step: at most once a step and, with several replicas, after
  /// reduce_gradients(). Throws InvalidArgument if the gradients are already unscaled or used by a step, and
  /// for float16 gradients, since autocast keeps parameters in float32.
  void unscale(const torch::optim::Optimizer& optimizer);

  /// Unscales the gradients unless unscale() has done so, calls `change_gradients`, and steps the optimizer
  /// if all unscaled gradients were finite. apply_gradients() calls it. Waits for the device if the optimizer
  /// is not a SkippableStep, and if `take_step` is given. Throws InvalidArgument as unscale() does.
  ///
  /// If `take_step` is given, it is called instead of the optimizer's own step. If `agree` is given, it is
  /// called with the tensor that is 1 if a gradient is not finite, and sets it to 1 if another rank has such
  /// a gradient.
  void step(torch::optim::Optimizer& optimizer, const std::function<void()>& change_gradients = {},
            const std::function<void()>& take_step = {},
            const std::function<void(const at::Tensor& found_inf)>& agree = {});

  /// Ends a step, after all optimizers have stepped. Multiplies the scale by backoff_factor if any of them
  /// was skipped, and by growth_factor after growth_interval steps without a skip, unless it would overflow.
  /// Throws InvalidArgument if nothing was stepped or unscaled since the last update.
  void update();

  /// Returns the scale, or 1 if not enabled. Waits for the device if enabled.
  double get_scale() const;
  /// Returns the state for a checkpoint, after update(). Waits for the device.
  GradScalerState state() const;
  /// Continues from `state`, and forgets which gradients were unscaled since the last update(). Throws
  /// InvalidArgument for values that state() never returns.
  void load_state(const GradScalerState& state);

  /// Calls `visit(tensor)` for the tensors of the state, which change in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(scale_);
    visit(growth_tracker_);
  }

 private:
  /// Tracks an optimizer's gradients since the last update().
  struct Record {
    const torch::optim::Optimizer* optimizer;
    at::Tensor found_inf;
    bool has_stepped;
  };

  Record* find(const torch::optim::Optimizer& optimizer);
  at::Tensor unscale_gradients(const torch::optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  at::Tensor scale_;           // Float32 scalar, on the device.
  at::Tensor growth_tracker_;  // Int32 scalar, on the device.
  std::vector<Record> records_;
};

}  // namespace lockstep
