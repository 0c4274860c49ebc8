#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

/// Hooks on the gradient accumulators of the parameters that require a gradient; removed on destruction.
class GradientHooks {
 public:
  /// Installs hooks: each backward that reaches `parameters[index]` calls `on_gradient(index)` in the
  /// accumulating thread, after the gradient has been accumulated; grad() may still be undefined. Construct
  /// it in the replica's thread, on the stream that backward will use: gradient accumulators keep the stream
  /// they are created on.
  template <typename OnGradient>
  GradientHooks(const std::vector<at::Tensor>& parameters, OnGradient on_gradient)
      : GradientHooks(parameters.size()) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].requires_grad()) continue;
      install(i, parameters[i], [on_gradient, i](const Gradients& outputs, const Gradients&) {
        on_gradient(i);
        return outputs;
      });
    }
  }
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  /// Returns true if every hook is still active. Replacing a parameter's data drops its accumulator, and the
  /// hook with it.
  bool are_in_place(const std::vector<at::Tensor>& parameters) const;

 private:
  using Gradients = torch::autograd::variable_list;

  // Delegated to, so that the destructor removes installed hooks if a later one cannot be installed.
  explicit GradientHooks(size_t num_parameters) : accumulators_(num_parameters), keys_(num_parameters) {}
  void install(size_t index, const at::Tensor& parameter,
               std::function<Gradients(const Gradients& outputs, const Gradients& inputs)> hook);

  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<uintptr_t> keys_;
};

}  // namespace lockstep
