#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "lockstep/runtime/replicas/module_state.h"

namespace lockstep {

/// Switches a module to evaluation while it lives, then restores the training flags of all its submodules.
///
/// Example:
///
///     const EvaluationGuard evaluation(*model);
///     const torch::Tensor scores = model->forward(images);
class EvaluationGuard {
 public:
  explicit EvaluationGuard(torch::nn::Module& module) : module_(module), flags_(training_flags(module)) {
    module_.eval();
  }
  ~EvaluationGuard() { set_training_flags(module_, flags_); }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module& module_;
  std::vector<bool> flags_;
};

}  // namespace lockstep
