#include "lockstep/runtime/gradients/host_optimizer_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/devices/pinned_memory.h"
#include "lockstep/runtime/gradients/state_slice.h"

namespace lockstep {
namespace {

at::Tensor pinned_like(const at::Tensor& tensor) {
  return pinned_for(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU)),
                    tensor.device());
}

bool is_like(const at::Tensor& copy, const at::Tensor& tensor) {
  return copy.defined() && copy.sizes() == tensor.sizes() && copy.strides() == tensor.strides() &&
         copy.scalar_type() == tensor.scalar_type();
}

template <typename State>
const State* as(const torch::optim::OptimizerParamState& state) {
  return dynamic_cast<const State*>(&state);
}

/// Returns a tensor of a state of LibTorch's elementwise optimizers; undefined if there is none.
at::Tensor tensor_of(const torch::optim::OptimizerParamState& state) {
  namespace optim = torch::optim;
  if (const auto* sgd = as<optim::SGDParamState>(state)) return sgd->momentum_buffer();
  if (const auto* adam = as<optim::AdamParamState>(state)) return adam->exp_avg();
  if (const auto* adamw = as<optim::AdamWParamState>(state)) return adamw->exp_avg();
  if (const auto* adagrad = as<optim::AdagradParamState>(state)) return adagrad->sum();
  if (const auto* rmsprop = as<optim::RMSpropParamState>(state)) return rmsprop->square_avg();
  return {};
}

/// Returns whether a state is on the CPU. Of unknown types, only `stepped`, the state that the last step
/// left, is known to be.
bool is_on_host(const torch::optim::OptimizerParamState& state,
                const torch::optim::OptimizerParamState* stepped) {
  const auto tensor = tensor_of(state);
  return tensor.defined() ? tensor.is_cpu() : &state == stepped;
}

}  // namespace

/// While it lives, the optimizer has the copies instead of the parameters, and their state under the copies.
class HostOptimizerState::Swapped {
 public:
  Swapped(torch::optim::Optimizer& optimizer, const std::vector<Place>& places)
      : optimizer_(optimizer), places_(places) {
    for (const auto& place : places_) put(place, place.parameter, place.copy->value);
  }
  ~Swapped() {
    for (const auto& place : places_) {
      put(place, place.copy->value, place.parameter);
      place.copy->value.mutable_grad().reset();
      const auto found = optimizer_.state().find(place.parameter.unsafeGetTensorImpl());
      place.copy->state = found == optimizer_.state().end() ? nullptr : found->second.get();
    }
  }
  Swapped(const Swapped&) = delete;
  Swapped& operator=(const Swapped&) = delete;

 private:
  /// Puts `to` in the place of `from`, and its state.
  void put(const Place& place, const at::Tensor& from, const at::Tensor& to) {
    optimizer_.param_groups()[place.group].params()[place.index] = to;
    auto& states = optimizer_.state();
    const auto found = states.find(from.unsafeGetTensorImpl());
    if (found == states.end()) return;
    auto state = std::move(found->second);
    states.erase(found);
    states[to.unsafeGetTensorImpl()] = std::move(state);
  }

  torch::optim::Optimizer& optimizer_;
  const std::vector<Place>& places_;
};

void HostOptimizerState::step(torch::optim::Optimizer& optimizer, const std::function<void()>& take_step) {
  const auto places = copy_to_host(optimizer);
  {
    const Swapped swapped(optimizer, places);
    take_step();
  }
  // The next step copies to the same memory after these copies, on the same stream.
  const at::NoGradGuard no_grad;
  for (const auto& place : places) place.parameter.copy_(place.copy->value, /*non_blocking=*/true);
}

/// Copies the parameters with gradients that are not on the CPU.
std::vector<HostOptimizerState::Place> HostOptimizerState::copy_to_host(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<Place> places;
  std::vector<c10::Device> devices;
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    for (size_t index = 0; index < groups[group].params().size(); ++index) {
      const at::Tensor& parameter = groups[group].params()[index];
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
      places.push_back({group, index, parameter, &copy});
      if (std::find(devices.begin(), devices.end(), parameter.device()) == devices.end())
        devices.push_back(parameter.device());
    }
  }
  for (const auto& device : devices) synchronize_stream(current_stream(device));
  for (const auto& [group, index, parameter, copy] : places) {
    copy->value.mutable_grad() = copy->gradient;
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end() || is_on_host(*found->second, copy->state)) continue;
    found->second = state_on(*found->second, at::kCPU);
  }
  return places;
}

HostOptimizerState::Copy& HostOptimizerState::copy_of(const at::Tensor& parameter) {
  Copy& copy = copies_[parameter.unsafeGetTensorImpl()];
  if (!is_like(copy.value, parameter)) copy = {.value = pinned_like(parameter), .gradient = {}};
  return copy;
}

}  // namespace lockstep
