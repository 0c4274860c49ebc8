#include "lockstep/training/state/internal/sharded_states.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/training/state/internal/divided_tensor.h"
#include "lockstep/training/state/internal/shard_pieces.h"
#include "lockstep/training/state/internal/text_tensor.h"
#include "lockstep/training/state/optimizer_state.h"

namespace lockstep {
namespace {

/// A tensor like the whole parameter, without memory.
torch::Tensor whole_like(const torch::Tensor& tensor, torch::ScalarType dtype) {
  const auto* shard = sharded_parameter_of(tensor);
  const auto options = torch::TensorOptions(dtype).device(torch::kMeta);
  return shard != nullptr ? at::empty_strided(shard->sizes, shard->strides, options)
                          : at::empty_strided(tensor.sizes(), tensor.strides(), options);
}

/// Returns whether no rank of a lower number has the same elements of a parameter with this place, whose
/// elements differ along the place's axes only.
bool has_first_copy(const Strategy& strategy, int local, const ShardedParameter& place) {
  if (place.is_copy) return false;
  const Mesh& mesh = strategy.mesh();
  const auto own = mesh.coordinates(strategy.first_local_replica() + local);
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string& axis = mesh.axes()[i].name;
    const bool has_other_elements =
        axis == place.axis || axis == place.stage_axis || (place.cut != nullptr && axis == place.cut->axis);
    if (own[i] != 0 && !has_other_elements) return false;
  }
  return true;
}

/// Returns whether the tensor is a shard with elements that no earlier rank has.
bool is_own_shard(const Strategy& strategy, int local, const torch::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard != nullptr && shard->length > 0 && has_first_copy(strategy, local, *shard);
}

/// Elements of an optimizer's parameter that a rank steps.
struct SteppedPiece {
  size_t parameter = 0;
  torch::Tensor tensor;
  ShardedParameter place;
};

/// Returns the pieces of the optimizer's parameters whose state the local replica holds, and none of the
/// earlier ones.
std::vector<SteppedPiece> stepped_pieces(const Strategy& strategy, int local,
                                         const torch::optim::Optimizer& optimizer,
                                         const ShardedParameters* part) {
  std::vector<SteppedPiece> pieces;
  const auto parameters = parameters_of(optimizer);
  if (part != nullptr) {
    for (size_t i = 0; i < part->slices().size(); ++i) {
      const ParameterSlice& slice = part->slices()[i];
      auto place = slice_of_parameter(parameters[slice.parameter], "", strategy.sharding().axis, slice.offset,
                                      slice.length);
      if (!has_first_copy(strategy, local, place)) continue;
      pieces.push_back({slice.parameter, part->tensor(i), std::move(place)});
    }
  }
  const auto add_shard = [&](size_t i) {
    if (is_own_shard(strategy, local, parameters[i]))
      pieces.push_back({i, parameters[i], *sharded_parameter_of(parameters[i])});
  };
  if (part != nullptr) {
    for (const size_t i : part->shards()) add_shard(i);
  } else {
    for (size_t i = 0; i < parameters.size(); ++i) add_shard(i);
  }
  return pieces;
}

/// The states of an optimizer's parameters, as all workers learn of them.
class DividedStates {
 public:
  explicit DividedStates(const torch::optim::Optimizer& optimizer) {
    for (const auto& group : optimizer.param_groups()) {
      parameters_.insert(parameters_.end(), group.params().begin(), group.params().end());
      groups_.resize(parameters_.size(), num_groups_++);
    }
  }

  bool has_shards() const { return std::any_of(parameters_.begin(), parameters_.end(), is_shard); }

  /// Adds a local replica's state of a piece.
  void add_own(const torch::optim::Optimizer& optimizer, const SteppedPiece& piece) {
    const auto values = state_of_tensor(optimizer, groups_[piece.parameter], piece.tensor);
    for (const auto& [key, value] : values.entries) {
      const auto& name = std::get<std::string>(key);
      const auto& tensor = *value.get_if<torch::Tensor>();
      const bool has_elements = tensor.sizes() == piece.tensor.sizes();
      told_.push_back(torch::tensor({static_cast<int64_t>(piece.parameter), int64_t{has_elements},
                                     static_cast<int64_t>(tensor.scalar_type())},
                                    torch::kLong));
      told_.push_back(text_tensor(name));
      told_.push_back(has_elements ? torch::empty({0}) : tensor);
      if (!has_elements) continue;
      auto& own = own_[{piece.parameter, name}];
      for (auto& part : pieces_of_shard(tensor, piece.place)) own.push_back(std::move(part));
    }
  }

  /// Returns the states of all parameters of which a replica has one. A collective.
  std::map<int64_t, StateValue::Dict> exchange(Strategy& strategy) {
    std::map<int64_t, StateValue::Dict> states;
    for (const auto& told : strategy.extended().gather_tensors(told_)) {
      for (size_t i = 0; i < told.size(); i += 3) {
        const auto* head = told[i].const_data_ptr<int64_t>();
        const auto parameter = static_cast<size_t>(head[0]);
        const std::string name = text_of_tensor(told[i + 1]);
        auto& state = states[head[0]];
        if (state.find(name) != nullptr) continue;  // of another piece
        if (head[1] == 0) {
          state.add(name, told[i + 2]);
          continue;
        }
        const auto like = whole_like(parameters_[parameter], static_cast<torch::ScalarType>(head[2]));
        state.add(name, divided_tensor(like, std::move(own_[{parameter, name}])));
      }
    }
    return states;
  }

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<size_t> groups_;  // of each parameter
  size_t num_groups_ = 0;
  std::vector<torch::Tensor> told_;
  std::map<std::pair<size_t, std::string>, std::vector<TensorPiece>> own_;
};

}  // namespace

torch::Tensor values_like(const StateView& saved, const torch::Tensor& parameter) {
  const auto* shard = sharded_parameter_of(parameter);
  if (shard == nullptr) return saved.tensor_like(parameter);
  const auto whole = torch::empty({}, parameter.options().requires_grad(false)).expand(shard->sizes);
  return part_of_values(saved.tensor_like(whole), *shard);
}

NamedTensors divided_tensors(const Strategy& strategy, const std::vector<NamedTensors>& replicas) {
  NamedTensors result = replicas.front();
  for (size_t i = 0; i < result.size(); ++i) {
    torch::Tensor& tensor = result[i].second;
    if (!is_shard(tensor)) continue;
    std::vector<TensorPiece> pieces;
    for (size_t local = 0; local < replicas.size(); ++local) {
      const torch::Tensor& own = replicas[local][i].second;
      if (!is_own_shard(strategy, static_cast<int>(local), own)) continue;
      const auto* shard = sharded_parameter_of(own);
      for (auto& piece : pieces_of_shard(own.detach(), *shard)) pieces.push_back(std::move(piece));
    }
    tensor = divided_tensor(whole_like(tensor, tensor.scalar_type()), std::move(pieces));
  }
  return result;
}

StateValue::Dict divided_optimizer_state(Strategy& strategy,
                                         const std::vector<torch::optim::Optimizer*>& replicas) {
  const torch::NoGradGuard no_grad;
  const auto parts = strategy.extended().optimizer_parts(*replicas[0]);
  DividedStates states(*replicas[0]);
  if (parts.empty() && !states.has_shards()) return optimizer_state(*replicas[0]);
  for (size_t local = 0; local < replicas.size(); ++local) {
    for (const auto& piece : stepped_pieces(strategy, static_cast<int>(local), *replicas[local],
                                            parts.empty() ? nullptr : parts[local]))
      states.add_own(*replicas[local], piece);
  }
  return optimizer_state_with(*replicas[0], states.exchange(strategy));
}

}  // namespace lockstep
