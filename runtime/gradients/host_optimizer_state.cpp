#include "lockstep/runtime/gradients/host_optimizer_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <memory>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/gradients/state_slice.h"

namespace lockstep {
namespace {

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU)).pin_memory();
}

bool is_like(const at::Tensor& copy, const at::Tensor& tensor) {
  return copy.defined() && copy.sizes() == tensor.sizes() && copy.strides() == tensor.strides() &&
         copy.scalar_type() == tensor.scalar_type();
}

}  // namespace

/// While it lives, the optimizer has the copies instead of the parameters, and their state under the copies.
class HostOptimizerState::Swapped {
 public:
  Swapped(torch::optim::Optimizer& optimizer, std::vector<Pair>& pairs)
      : optimizer_(optimizer), pairs_(pairs) {
    for (auto& [parameter, copy] : pairs_) move_state(parameter, copy->value);
    for (auto& group : optimizer_.param_groups()) {
      groups_.push_back(group.params());
      for (auto& parameter : group.params()) {
        const auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& candidate) {
          return candidate.parameter.is_same(parameter);
        });
        if (pair != pairs_.end()) parameter = pair->copy->value;
      }
    }
  }
  ~Swapped() {
    for (size_t group = 0; group < groups_.size(); ++group)
      optimizer_.param_groups()[group].params() = std::move(groups_[group]);
    for (auto& [parameter, copy] : pairs_) {
      move_state(copy->value, parameter);
      copy->value.mutable_grad().reset();
      const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
      copy->state = found == optimizer_.state().end() ? nullptr : found->second.get();
    }
  }
  Swapped(const Swapped&) = delete;
  Swapped& operator=(const Swapped&) = delete;

 private:
  void move_state(const at::Tensor& from, const at::Tensor& to) {
    auto& states = optimizer_.state();
    const auto found = states.find(from.unsafeGetTensorImpl());
    if (found == states.end()) return;
    auto state = std::move(found->second);
    states.erase(found);
    states[to.unsafeGetTensorImpl()] = std::move(state);
  }

  torch::optim::Optimizer& optimizer_;
  std::vector<Pair>& pairs_;
  std::vector<std::vector<at::Tensor>> groups_;
};

void HostOptimizerState::step(torch::optim::Optimizer& optimizer, const std::function<void()>& take_step) {
  auto pairs = copy_to_host(optimizer);
  {
    const Swapped swapped(optimizer, pairs);
    take_step();
  }
  // The next step copies to the same memory after these copies, on the same stream.
  const at::NoGradGuard no_grad;
  for (const auto& [parameter, copy] : pairs) parameter.copy_(copy->value, /*non_blocking=*/true);
}

/// Copies the parameters with gradients that are not on the CPU.
std::vector<HostOptimizerState::Pair> HostOptimizerState::copy_to_host(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<Pair> pairs;
  std::vector<c10::Device> devices;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (parameter.is_cpu() || !gradient.defined()) continue;
      Copy& copy = copy_of(parameter);
      // The function may have changed the parameter since the last step.
      copy.value.copy_(parameter, /*non_blocking=*/true);
      if (gradient.layout() == at::kStrided) {
        if (!is_like(copy.gradient, gradient)) copy.gradient = pinned_like(gradient);
        copy.gradient.copy_(gradient, /*non_blocking=*/true);
      } else {
        copy.gradient = gradient.cpu();
      }
      pairs.push_back({parameter, &copy});
      if (std::find(devices.begin(), devices.end(), parameter.device()) == devices.end())
        devices.push_back(parameter.device());
    }
  }
  for (const auto& device : devices) current_stream(device).synchronize();
  for (const auto& [parameter, copy] : pairs) {
    copy->value.mutable_grad() = copy->gradient;
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end() || found->second.get() == copy->state) continue;
    found->second = state_on(*found->second, at::kCPU);
  }
  return pairs;
}

HostOptimizerState::Copy& HostOptimizerState::copy_of(const at::Tensor& parameter) {
  Copy& copy = copies_[parameter.unsafeGetTensorImpl()];
  if (!is_like(copy.value, parameter)) copy = {.value = pinned_like(parameter), .gradient = {}};
  return copy;
}

}  // namespace lockstep
