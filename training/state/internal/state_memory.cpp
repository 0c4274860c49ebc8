#include "lockstep/training/state/internal/state_memory.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/formats/nested_value.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/optimizers/sparse_adam.h"
#include "lockstep/training/state/internal/sharded_states.h"

namespace lockstep {
namespace {

template <typename Options>
const Options* options_as(const torch::optim::OptimizerParamGroup& group) {
  return group.has_options() ? dynamic_cast<const Options*>(&group.options()) : nullptr;
}

/// Of optimizers like Adam, which keep the largest second moments with AMSGrad.
template <typename Options>
std::optional<int64_t> moments_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = options_as<Options>(group);
  if (options == nullptr) return std::nullopt;
  return options->amsgrad() ? 3 : 2;
}

template <typename Options>
std::optional<int64_t> momentum_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = options_as<Options>(group);
  if (options == nullptr) return std::nullopt;
  return options->momentum() != 0 ? 1 : 0;
}

}  // namespace

std::optional<int64_t> state_bytes(const torch::optim::Optimizer& optimizer, const ShardedParameters* part,
                                   DistinctMemory& memory) {
  int64_t bytes = 0;
  const auto add_state = [&](size_t group, const torch::Tensor& tensor) {
    // Saving the state of a tensor that has none yet may make some.
    const auto& states = optimizer.state();
    if (states.find(tensor.unsafeGetTensorImpl()) == states.end()) return;
    visit_tensors(StateValue(state_of_tensor(optimizer, group, tensor)),
                  [&](const std::string& name, const torch::Tensor& value) {
                    // Counters may be made for the state alone.
                    if (name != "step") bytes += memory.add(value);
                  });
  };
  try {
    std::vector<size_t> group_of;
    for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
      for (const auto& parameter : optimizer.param_groups()[group].params()) {
        group_of.push_back(group);
        add_state(group, parameter);
      }
    }
    for (size_t i = 0; part != nullptr && i < part->slices().size(); ++i)
      add_state(group_of[part->slices()[i].parameter], part->tensor(i));
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
  return bytes;
}

std::optional<int64_t> states_of_group(const torch::optim::OptimizerParamGroup& group) {
  namespace optim = torch::optim;
  for (const auto& states : {moments_of<optim::AdamOptions>(group), moments_of<optim::AdamWOptions>(group),
                             moments_of<FusedAdamOptions>(group), moments_of<FusedAdamWOptions>(group),
                             momentum_of<optim::SGDOptions>(group), momentum_of<FusedSgdOptions>(group)}) {
    if (states) return states;
  }
  if (options_as<SparseAdamOptions>(group) != nullptr) return 2;
  if (options_as<optim::AdagradOptions>(group) != nullptr) return 1;
  if (options_as<FusedAdagradOptions>(group) != nullptr) return 1;
  return std::nullopt;
}

}  // namespace lockstep
