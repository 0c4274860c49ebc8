#include "lockstep/lockstep.h"

namespace {

lockstep::StrategyConfig configure(const lockstep::StrategyRequest& request) {
  const auto names = request.devices.empty() ? lockstep::cpu_devices(2) : request.devices;
  return {.name = "FiniteStepsStrategy",
          .devices = lockstep::parse_devices(names),
          .cross_device_ops = request.options.cross_device_ops,
          .intra_op_threads = request.options.intra_op_threads,
          .seed = request.options.seed,
          .buckets = request.options.buckets,
          .gradient_compression = request.options.communication.gradient_compression,
          .timeout = request.options.timeout};
}

bool all_finite(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() && !parameter.grad().isfinite().all().item<bool>()) return false;
    }
  }
  return true;
}

/// Mirrors a training over devices, and skips every step whose gradients are not all finite.
class FiniteStepsStrategy : public lockstep::Strategy {
 public:
  explicit FiniteStepsStrategy(const lockstep::StrategyRequest& request) : Strategy(configure(request)) {}

  torch::Tensor apply_gradients(lockstep::ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const lockstep::ApplyOptions& options) override {
    // The sums are bit-equal on every replica, so all decide the same without communication.
    reduce_gradients(replica, optimizer);
    if (!all_finite(optimizer)) return {};
    return Strategy::apply_gradients(replica, optimizer, options);  // does not sum again
  }
};

// Before main, so that the name is known when flags are parsed.
const bool registered = lockstep::register_strategy(
    "finite_steps",
    [](const lockstep::StrategyRequest& request) { return std::make_unique<FiniteStepsStrategy>(request); });

}  // namespace
