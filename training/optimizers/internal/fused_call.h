#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/training/optimizers/step_rates.h"

// What FusedAdam, FusedAdamW and FusedSgd share: from parameter groups to the lists that ATen's fused
// operators take. Those operators walk raw memory on a CPU, without looking at strides, so every list entry
// is brought into its parameter's layout first.

namespace lockstep {

/// Names a parameter in an error message.
struct ParameterPosition {
  const char* optimizer;
  size_t group;
  size_t index;
};

/// The arguments of one fused operator: tensors of one device and dtype, entry i of every list for the same
/// parameter.
struct FusedCall {
  torch::Device device;
  torch::ScalarType dtype;
  bool first_step;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::array<std::vector<torch::Tensor>, 4> states;  ///< each optimizer's own, unused ones empty
};

/// The call among `calls` that takes `parameter`, added where there is none yet.
FusedCall& fused_call_for(std::vector<FusedCall>& calls, const torch::Tensor& parameter,
                          bool first_step = false);

/// The gradient of `parameter` as a fused operator takes it, undefined if it has none. Throws
/// std::invalid_argument naming the parameter if it or its gradient is sparse, not of a floating type, or has
/// overlapping elements or gaps.
torch::Tensor fused_gradient(const torch::Tensor& parameter, const ParameterPosition& position);

/// `state` itself if it has the device, dtype and strides of `parameter`, else a copy that has. A loaded
/// state may need that. Throws std::invalid_argument naming the parameter if the shapes differ.
torch::Tensor fused_state(const torch::Tensor& state, const torch::Tensor& parameter,
                          const ParameterPosition& position);

/// What a fused operator takes for SkippableStep's `found_inf` on `device`: none where it is undefined.
std::optional<torch::Tensor> fused_found_inf(const torch::Tensor& found_inf, torch::Device device);

/// Runs the closure of Optimizer::step with gradients enabled; an undefined tensor if there is none.
torch::Tensor evaluate_closure(const torch::optim::Optimizer::LossClosure& closure);

/// Throws std::invalid_argument `[<optimizer>] expected <option> to be <expected>, but got <given>` unless
/// `holds`.
void require_option(bool holds, const char* optimizer, const char* option, const char* expected,
                    double given);

/// Throws std::invalid_argument saying that a parameter group holds options of another optimizer.
[[noreturn]] void throw_foreign_options(const char* optimizer, size_t group);

/// The options of param_groups[group], or throw_foreign_options().
template <typename Options>
const Options& fused_options(const std::vector<torch::optim::OptimizerParamGroup>& param_groups, size_t group,
                             const char* optimizer) {
  const auto* options = dynamic_cast<const Options*>(&param_groups[group].options());
  if (options == nullptr) throw_foreign_options(optimizer, group);
  return *options;
}

/// Adds each group's options but for the learning rate, that too where steps do not read it from a tensor,
/// and the tensors of each parameter and its state: CapturableStep::describe_step. `add_options(options)` and
/// `add_state(state)` add theirs.
template <typename Options, typename State, typename AddOptions, typename AddState>
void describe_fused_step(Fingerprint& fingerprint, const torch::optim::Optimizer& optimizer, const char* name,
                         const AddOptions& add_options, const AddState& add_state) {
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& options = fused_options<Options>(optimizer.param_groups(), group, name);
    add_options(options);
    for (const auto& parameter : optimizer.param_groups()[group].params()) {
      fingerprint.add_identity(parameter);
      if (!StepRates::are_tensors_for(parameter)) fingerprint.add(options.lr());
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) add_state(static_cast<const State&>(*state->second));
    }
  }
}

/// The state that the optimizer keeps for `parameter`, made where there is none yet.
template <typename State>
State& fused_state_of(ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>& states,
                      const torch::Tensor& parameter) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

}  // namespace lockstep
