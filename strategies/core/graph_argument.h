#pragma once

#include <torch/types.h>

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/value_kind.h"
#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep::detail {

template <typename A>
inline constexpr bool is_mirrored = false;
template <typename T>
inline constexpr bool is_mirrored<Mirrored<T>> = true;
template <typename A>
inline constexpr bool is_replicated = is_mirrored<A>;
template <typename T>
inline constexpr bool is_replicated<PerReplica<T>> = true;

/// Your own state: `value.for_each_tensor(visit)` calls `visit(tensor)` for every tensor that it keeps.
template <typename T>
concept HasStateTensors = requires(const T& value, void (*visit)(const torch::Tensor&)) {
  value.for_each_tensor(visit);
};

/// Tensors that change with each run, such as a batch. They are copied to where the graph reads them.
template <typename A>
concept GraphInput = requires {
  typename A::value_type;
}
&&is_replicated<A> && !is_mirrored<A> && HasTensors<typename A::value_type>;

/// A constant of the graph, compared with ==. Tensors are compared by identity.
template <typename A>
concept GraphConstant = !is_replicated<A> && (std::equality_comparable<A> || std::same_as<A, torch::Tensor>);

template <typename T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Objects that the graph reads and writes in place.
template <typename A>
concept GraphState = requires {
  typename A::value_type;
}
&&is_replicated<A> && !GraphInput<A> &&
    (ModuleLike<typename A::value_type> || OptimizerLike<typename A::value_type> ||
     HasTensors<typename A::value_type> || HasStateTensors<typename A::value_type> ||
     is_number<typename A::value_type>);

/// Adds a tensor that is read and written in place, and whether it has a gradient.
void describe_tensor(Fingerprint& fingerprint, const torch::Tensor& tensor);
/// Adds the parameters, buffers and training flags of a module and its submodules.
void describe_module(Fingerprint& fingerprint, const torch::nn::Module& module);
/// Adds everything that a captured step takes from the optimizer. Throws InvalidArgument if the optimizer is
/// not a CapturableStep.
void describe_optimizer(Fingerprint& fingerprint, const torch::optim::Optimizer& optimizer);
/// Throws InvalidArgument for a tensor that is not dense, is not on `device`, or requires a gradient.
void check_input(const torch::Tensor& tensor, torch::Device device);
/// Throws InvalidArgument for a tensor that is not on `device`.
void check_result(const torch::Tensor& tensor, torch::Device device);
[[noreturn]] void refuse_changed_input();
void check_warm_up(int runs);
/// Returns how often the tensor was written to. Always 0 under InferenceMode, which does not count.
int64_t version_of(const torch::Tensor& tensor);
/// Returns a new tensor with the same layout and values.
torch::Tensor copy_of(const torch::Tensor& tensor);

/// Adds one replica's value of the argument.
template <GraphState A>
void describe_state(Fingerprint& fingerprint, const A& argument, size_t replica) {
  using T = typename A::value_type;
  const auto visit = [&](const torch::Tensor& tensor) { describe_tensor(fingerprint, tensor); };
  const auto& value = argument.local_values()[replica];
  if constexpr (ModuleLike<T>) {
    if (const auto module = module_pointer(value)) describe_module(fingerprint, *module);
  } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    describe_optimizer(fingerprint, value);
  } else if constexpr (OptimizerLike<T>) {
    describe_optimizer(fingerprint, *value);
  } else if constexpr (HasTensors<T>) {
    BatchTraits<T>::for_each_tensor(value, visit);
  } else if constexpr (HasStateTensors<T>) {
    fingerprint.add(&value);
    value.for_each_tensor(visit);
  } else {
    fingerprint.add(static_cast<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>(value));
  }
}

/// Adds one replica's value of the argument. Throws as check_input().
template <GraphInput A>
void describe_input(Fingerprint& fingerprint, const A& argument, size_t replica) {
  using T = typename A::value_type;
  const auto device = (*argument.devices())[replica].torch_device();
  BatchTraits<T>::for_each_tensor(argument.local_values()[replica], [&](const torch::Tensor& tensor) {
    if (tensor.defined()) check_input(tensor, device);
    fingerprint.add_layout(tensor);
  });
}

/// The optimizers among a replica's values, and the parameters that a captured function may make gradients
/// for, each once.
class GraphObjects {
 public:
  template <typename T>
  void add_optimizers(T& value) {
    using Value = std::remove_const_t<T>;
    if constexpr (std::derived_from<Value, torch::optim::Optimizer>) {
      if constexpr (!std::is_const_v<T>) optimizers_.push_back(&value);
    } else if constexpr (OptimizerLike<Value>) {
      optimizers_.push_back(&*value);
    }
  }
  template <typename T>
  void add_parameters(const T& value) {
    if constexpr (ModuleLike<T>) {
      if (const auto module = module_pointer(value)) add_of_module(*module);
    } else if constexpr (HasTensors<T>) {
      BatchTraits<T>::for_each_tensor(value, [this](const torch::Tensor& tensor) { add_parameter(tensor); });
    }
  }
  /// Returns the parameters that were added and those of the optimizers, and forgets them.
  std::vector<torch::Tensor> take_parameters();
  const std::vector<torch::optim::Optimizer*>& optimizers() const { return optimizers_; }

 private:
  void add_of_module(const torch::nn::Module& module);
  void add_parameter(const torch::Tensor& tensor);

  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<torch::Tensor> parameters_;
  std::unordered_set<const void*> known_;
};

/// Returns `value` with copies of its tensors.
template <typename T>
T with_copied_tensors(T value) {
  BatchTraits<T>::for_each_tensor(value, [](torch::Tensor& tensor) {
    if (tensor.defined()) tensor = copy_of(tensor);
  });
  return value;
}

/// Copies the values of all tensors, on the current stream.
template <typename T>
void copy_tensors(T& to, const T& from) {
  std::vector<torch::Tensor> sources;
  BatchTraits<T>::for_each_tensor(from, [&](const torch::Tensor& tensor) { sources.push_back(tensor); });
  size_t next = 0;
  const torch::NoGradGuard no_grad;
  BatchTraits<T>::for_each_tensor(to, [&](torch::Tensor& tensor) {
    const torch::Tensor& source = sources[next++];
    if (tensor.defined()) tensor.copy_(source, /*non_blocking=*/true);
  });
}

/// State of an argument between runs: the value of a constant, or each replica's copy of an input.
template <typename A>
struct GraphSlot {
  std::monostate constant;
  std::monostate input;
};
template <GraphInput A>
struct GraphSlot<A> {
  std::monostate constant;
  std::vector<std::optional<typename A::value_type>> input;
};
template <GraphConstant A>
struct GraphSlot<A> {
  std::optional<A> constant;
  std::monostate input;
};

}  // namespace lockstep::detail
