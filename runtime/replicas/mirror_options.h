#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include "lockstep/runtime/replicas/evaluation_guard.h"

namespace lockstep {

/// Options of Strategy::mirror().
struct MirrorOptions {
  /// Input for which each clone must give the original's output bit for bit, compared in evaluation mode. For
  /// modules whose forward() maps one tensor to one tensor.
  torch::Tensor probe;
  bool channels_last = false;  ///< as in ScopeOptions
};

namespace detail {

/// Returns the output of `module` for `input` in evaluation mode.
template <typename M>
torch::Tensor probe(M& module, const torch::Tensor& input) {
  const at::NoGradGuard no_grad;
  const EvaluationGuard evaluation(module);
  const auto parameters = module.parameters();
  return module.forward(parameters.empty() ? input : input.to(parameters[0].device()));
}

}  // namespace detail

}  // namespace lockstep
