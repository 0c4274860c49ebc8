#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/strategies/core/tensor_structure.h"

namespace lockstep {

struct RecomputeOptions {
  /// Lets the second forward draw the same random numbers as the first. Without it, a function must draw
  /// none. A CudaGraph cannot capture it.
  bool restores_random_state = true;
};

namespace detail {

/// Puts a tensor of `tensors`, in their order, in place of each tensor in a value.
template <typename T>
void set_tensors(T& value, const std::vector<torch::Tensor>& tensors, size_t& next) {
  if constexpr (is_tensor_structure<T>) {
    visit_leaves(value, [&](auto& leaf) {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(leaf)>, torch::Tensor>) leaf = tensors[next++];
    });
  }
}

/// Appends the tensors in a value. Values of other types have none.
template <typename T>
void append_tensors(T& value, std::vector<torch::Tensor>& tensors) {
  if constexpr (is_tensor_structure<T>) {
    visit_leaves(value, [&](auto& leaf) {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(leaf)>, torch::Tensor>) tensors.push_back(leaf);
    });
  }
}

template <typename T>
std::vector<torch::Tensor> tensors_of(T& value) {
  std::vector<torch::Tensor> tensors;
  append_tensors(value, tensors);
  return tensors;
}

/// Calls a function, or forward() of a module that a holder or a pointer leads to. A holder's own operator()
/// returns nothing for a Sequential.
template <typename Fn, typename... Args>
auto call_forward(Fn& function, Args&... args) {
  if constexpr (requires { function->forward(args...); }) {
    return function->forward(args...);
  } else {
    return std::invoke(function, args...);
  }
}

/// A function and its arguments without their tensors, which each call gets anew.
template <typename Fn, typename... Args>
class RecomputedCall {
 public:
  explicit RecomputedCall(Fn function, Args... args)
      : function_(std::move(function)), args_(std::move(args)...) {}

  /// Moves the tensors out of the arguments.
  std::vector<torch::Tensor> take_tensors() {
    std::vector<torch::Tensor> tensors;
    std::apply([&](auto&... arg) { (append_tensors(arg, tensors), ...); }, args_);
    put_tensors(args_, std::vector<torch::Tensor>(tensors.size()));
    return tensors;
  }

  auto run(const std::vector<torch::Tensor>& tensors) {
    std::tuple<Args...> args = args_;
    put_tensors(args, tensors);
    return std::apply([&](auto&... arg) { return call_forward(function_, arg...); }, args);
  }

 private:
  static void put_tensors(std::tuple<Args...>& args, const std::vector<torch::Tensor>& tensors) {
    [[maybe_unused]] size_t next = 0;
    std::apply([&](auto&... arg) { (set_tensors(arg, tensors, next), ...); }, args);
  }

  Fn function_;
  std::tuple<Args...> args_;
};

/// The first forward of a function that backward will call again.
class FirstForward {
 public:
  FirstForward(std::vector<torch::Tensor> inputs, const RecomputeOptions& options);
  ~FirstForward();
  FirstForward(const FirstForward&) = delete;
  FirstForward& operator=(const FirstForward&) = delete;

  /// Returns what the function must be called with.
  const std::vector<torch::Tensor>& inputs() const;
  /// Returns the function's results with a history of one operation, whose backward calls `again`.
  std::vector<torch::Tensor> record(
      const std::vector<torch::Tensor>& results,
      std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> again);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Returns `function(args...)`, but keeps nothing that it computes for backward except its arguments:
/// backward calls it again (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Use it for
/// parts of a model, such as each block of a transformer. Activations then need the memory of the parts'
/// inputs and of one part, for one more forward.
///
/// Values and gradients are the same as without it. The second call gets the same random numbers, from the
/// replica's generator or else the default generators of the CPU and of the inputs' devices, and the same
/// autocast settings; afterwards they are as before. Parameters, and tensors that the function captures, get
/// their gradients as usual: hooks run once, after the last use, so that sums over replicas overlap with
/// backward. Calls can be nested. Collectives in the function run again in backward, so all replicas must
/// recompute the same functions in the same order.
///
/// `function` is a function, a module holder or a pointer to a module. Tensors may be in tuples, vectors and
/// your own structs, as in TensorStructure, or captured; other arguments are copied. It returns a tensor or a
/// TensorStructure. Without gradients (torch::NoGradGuard), this only calls it.
///
/// The function must compute the same both times, and change nothing: it runs twice, so a BatchNorm updates
/// its running statistics twice. Objects that it refers to must live until backward has run. In a replica on
/// a GPU, random numbers drawn on the CPU are not repeated.
///
/// Backward throws InvalidArgument if the second call returns another number of tensors, other shapes, dtypes
/// or devices, or uses other parameters; if an argument or a parameter was changed in place since the first;
/// and with create_graph, since gradients cannot be differentiated again. torch::autograd::grad() and
/// retain_graph work.
///
/// Example:
///
///     for (const auto& block : *blocks) x = recompute(block, x);
template <typename Fn, typename... Args>
auto recompute(const RecomputeOptions& options, Fn&& function, Args&&... args) {
  using Call = detail::RecomputedCall<std::decay_t<Fn>, std::decay_t<Args>...>;
  using Result = decltype(std::declval<Call&>().run({}));
  static_assert(detail::is_tensor_structure<Result>,
                "recompute() takes a function that returns a tensor or a TensorStructure, such as a tuple or "
                "vector of tensors");
  const auto call = std::make_shared<Call>(std::forward<Fn>(function), std::forward<Args>(args)...);
  if (!at::GradMode::is_enabled()) return call->run(call->take_tensors());
  detail::FirstForward forward(call->take_tensors(), options);
  Result result = call->run(forward.inputs());
  const auto tensors = forward.record(detail::tensors_of(result), [call](const auto& inputs) {
    auto again = call->run(inputs);
    return detail::tensors_of(again);
  });
  size_t next = 0;
  detail::set_tensors(result, tensors, next);
  return result;
}

template <typename Fn, typename... Args>
requires(!std::same_as<std::remove_cvref_t<Fn>, RecomputeOptions>)  //
    auto recompute(Fn&& function, Args&&... args) {
  return recompute(RecomputeOptions{}, std::forward<Fn>(function), std::forward<Args>(args)...);
}

}  // namespace lockstep
