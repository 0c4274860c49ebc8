#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Resets BatchNorm's running statistics of a fit's models and lets each batch count alike while it lives.
/// Then the modules' momentum and the replicas' random streams are as before.
///
/// Example:
///
///     const BatchNormPass pass(state.objects());
///     if (pass.has_statistics()) { ... }  // forward passes in training mode
class BatchNormPass {
 public:
  explicit BatchNormPass(const FitState::Objects& objects);
  ~BatchNormPass();
  BatchNormPass(const BatchNormPass&) = delete;
  BatchNormPass& operator=(const BatchNormPass&) = delete;

  /// Returns whether a module has running statistics.
  bool has_statistics() const { return !restore_.empty(); }

 private:
  std::vector<std::function<void()>> restore_;  // gives each module its momentum back
  std::vector<at::Generator> generators_;       // of the local replicas
  std::vector<torch::Tensor> random_states_;
};

}  // namespace lockstep
