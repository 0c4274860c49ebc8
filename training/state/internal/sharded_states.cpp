#include "lockstep/training/state/internal/sharded_states.h"

#include <ATen/ops/empty_strided.h>

#include <string>
#include <utility>
#include <variant>

#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/gradients/state_slice.h"
#include "lockstep/training/state/internal/text_tensor.h"
#include "lockstep/training/state/optimizer_state.h"

namespace lockstep {
namespace {

/// Bytes of parameters whose states are exchanged at once.
constexpr int64_t kBytesAtOnce = int64_t{64} << 20;

struct ParameterOfGroup {
  torch::Tensor tensor;
  size_t group = 0;
};

std::vector<ParameterOfGroup> parameters_with_groups(const torch::optim::Optimizer& optimizer) {
  std::vector<ParameterOfGroup> parameters;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const auto& tensor : optimizer.param_groups()[group].params()) parameters.push_back({tensor, group});
  }
  return parameters;
}

/// A range of the optimizer's parameters, by their numbers.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

std::vector<Range> ranges_of(const std::vector<ParameterOfGroup>& parameters) {
  std::vector<Range> ranges;
  int64_t bytes = kBytesAtOnce;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (bytes >= kBytesAtOnce) {
      ranges.push_back({i, i});
      bytes = 0;
    }
    ranges.back().end = i + 1;
    bytes += static_cast<int64_t>(parameters[i].tensor.nbytes());
  }
  return ranges;
}

/// Appends to `sent`, for each slice with a state: where it is, and how many values follow; then their names
/// and values, in turn.
void append_states(const torch::optim::Optimizer& optimizer, const ShardedParameters& part,
                   const std::vector<ParameterOfGroup>& parameters, const Range& range,
                   std::vector<torch::Tensor>& sent) {
  for (size_t i = 0; i < part.slices().size(); ++i) {
    const ParameterSlice& slice = part.slices()[i];
    if (slice.parameter < range.begin || slice.parameter >= range.end || part.state(i) == nullptr) continue;
    const auto state = state_of_tensor(optimizer, parameters[slice.parameter].group, part.tensor(i));
    sent.push_back(torch::tensor({static_cast<int64_t>(slice.parameter), slice.offset, slice.length,
                                  static_cast<int64_t>(state.entries.size())}));
    for (const auto& [name, value] : state.entries) {
      sent.push_back(text_tensor(std::get<std::string>(name)));
      sent.push_back(*value.get_if<torch::Tensor>());
    }
  }
}

/// States of whole parameters, put together from those of slices.
class WholeStates {
 public:
  explicit WholeStates(const std::vector<ParameterOfGroup>& parameters) : parameters_(parameters) {}

  /// Adds what append_states() has appended.
  void add(const std::vector<torch::Tensor>& received) {
    for (auto next = received.begin(); next != received.end();) {
      const auto* head = (next++)->const_data_ptr<int64_t>();
      const auto parameter = static_cast<size_t>(head[0]);
      for (int64_t count = head[3]; count > 0; --count) {
        const std::string name = text_of_tensor(*next++);
        add_value(parameter, head[1], head[2], name, *next++);
      }
    }
  }
  const std::map<int64_t, StateValue::Dict>& states() const { return states_; }

 private:
  void add_value(size_t parameter, int64_t offset, int64_t length, const std::string& name,
                 const torch::Tensor& value) {
    auto& state = states_[static_cast<int64_t>(parameter)];
    const StateValue* known = state.find(name);
    const bool has_elements = value.dim() == 1 && value.numel() == length;
    if (known != nullptr && !has_elements) return;  // a number, the same for all slices
    if (known == nullptr) {
      const torch::Tensor& like = parameters_[parameter].tensor;
      state.add(name,
                has_elements ? at::empty_strided(like.sizes(), like.strides(), value.options()) : value);
      known = state.find(name);
    }
    if (has_elements) elements_of(*known->get_if<torch::Tensor>(), offset, length).copy_(value);
  }

  const std::vector<ParameterOfGroup>& parameters_;
  std::map<int64_t, StateValue::Dict> states_;
};

}  // namespace

StateValue::Dict whole_optimizer_state(Strategy& strategy,
                                       const std::vector<torch::optim::Optimizer*>& replicas,
                                       bool is_wanted) {
  const auto parts = strategy.extended().optimizer_parts(*replicas[0]);
  if (parts.empty()) return is_wanted ? optimizer_state(*replicas[0]) : StateValue::Dict();
  const torch::NoGradGuard no_grad;
  const auto parameters = parameters_with_groups(*replicas[0]);
  WholeStates whole(parameters);
  for (const Range& range : ranges_of(parameters)) {
    std::vector<torch::Tensor> own;
    for (size_t local = 0; local < parts.size(); ++local) {
      if (parts[local] != nullptr) append_states(*replicas[local], *parts[local], parameters, range, own);
    }
    for (const auto& of_worker : strategy.extended().gather_tensors(own)) {
      if (is_wanted) whole.add(of_worker);
    }
  }
  return is_wanted ? optimizer_state_with(*replicas[0], whole.states()) : StateValue::Dict();
}

}  // namespace lockstep
