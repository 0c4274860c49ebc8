#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

// Helpers of the optimizers: they turn parameter groups into the lists that ATen's fused operators take, and
// check and archive options. On a CPU these operators walk raw memory and ignore strides, so every list entry
// is first brought into its parameter's layout.

namespace lockstep {

/// Names a parameter in an error message.
struct ParameterPosition {
  const char* optimizer;
  size_t group;
  size_t index;
};

/// The arguments of one fused operator: tensors of one device and dtype. Entry i of every list belongs to the
/// same parameter.
struct FusedCall {
  torch::Device device;
  torch::ScalarType dtype;
  bool first_step;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::array<std::vector<torch::Tensor>, 4> states;  ///< specific to the optimizer; unused lists are empty
};

/// Returns the call among `calls` that takes `parameter`; adds it if there is none yet.
FusedCall& fused_call_for(std::vector<FusedCall>& calls, const torch::Tensor& parameter,
                          bool first_step = false);

/// Returns the gradient of `parameter` as a fused operator takes it; undefined if it has none. Throws
/// std::invalid_argument naming the parameter if it or its gradient is sparse, is not of a floating type, or
/// has overlapping elements or gaps.
torch::Tensor fused_gradient(const torch::Tensor& parameter, const ParameterPosition& position);

/// Returns `state` itself if it has the device, dtype and strides of `parameter`, otherwise a copy that does;
/// a loaded state may need one. Throws std::invalid_argument naming the parameter if the shapes differ.
torch::Tensor fused_state(const torch::Tensor& state, const torch::Tensor& parameter,
                          const ParameterPosition& position);

/// Returns SkippableStep's `found_inf` on `device` for a fused operator; none if it is undefined.
std::optional<torch::Tensor> fused_found_inf(const torch::Tensor& found_inf, torch::Device device);

/// Runs the closure of Optimizer::step with gradients enabled. Returns an undefined tensor if there is none.
torch::Tensor evaluate_closure(const torch::optim::Optimizer::LossClosure& closure);

/// Throws std::invalid_argument `[<optimizer>] expected <option> to be <expected>, but got <given>` unless
/// `holds`.
void require_option(bool holds, const char* optimizer, const char* option, const char* expected,
                    double given);

/// Reads the option `key`. Throws c10::Error if the archive lacks it.
torch::IValue read_option_value(torch::serialize::InputArchive& archive, const char* key);

/// Reads the option "maximize". Returns false if the archive lacks it, as archives of torch::optim do.
bool read_maximize(torch::serialize::InputArchive& archive);

/// Throws std::invalid_argument saying that a parameter group holds options of another optimizer.
[[noreturn]] void throw_foreign_options(const char* optimizer, size_t group);

/// Returns the options of param_groups[group], or calls throw_foreign_options().
template <typename Options>
const Options& fused_options(const std::vector<torch::optim::OptimizerParamGroup>& param_groups, size_t group,
                             const char* optimizer) {
  const auto* options = dynamic_cast<const Options*>(&param_groups[group].options());
  if (options == nullptr) throw_foreign_options(optimizer, group);
  return *options;
}

/// Returns the optimizer's state for `parameter`; creates it if there is none yet.
template <typename State>
State& fused_state_of(ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>& states,
                      const torch::Tensor& parameter) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// Collects the calls that step the parameters of one group that have a gradient. `add_state(calls,
/// parameter, position)` adds the parameter's state to one of `calls` and returns that call.
template <typename AddState>
std::vector<FusedCall> fused_calls(const std::vector<torch::Tensor>& parameters, const char* optimizer,
                                   size_t group, const AddState& add_state) {
  std::vector<FusedCall> calls;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const ParameterPosition position{.optimizer = optimizer, .group = group, .index = index};
    const auto& parameter = parameters[index];
    auto gradient = fused_gradient(parameter, position);
    if (!gradient.defined()) continue;
    FusedCall& call = add_state(calls, parameter, position);
    call.parameters.push_back(parameter);
    call.gradients.push_back(std::move(gradient));
  }
  return calls;
}

}  // namespace lockstep
