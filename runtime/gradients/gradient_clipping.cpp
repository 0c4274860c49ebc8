#include "lockstep/runtime/gradients/gradient_clipping.h"

#include <torch/types.h>

#include <cmath>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"

namespace lockstep {

at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm) {
  if (!(max_norm >= 0))
    throw InvalidArgument("[clip_norm] expected a norm of 0 or more, but got " + std::to_string(max_norm));
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (gradients.empty()) return at::zeros({});
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients) {
    // Rows that appear twice count by their sum.
    const at::Tensor values = gradient.is_sparse() ? coalesced_rows(gradient)._values() : gradient;
    norms.push_back(at::linalg_vector_norm(values).to(gradients[0].device()));
  }
  const at::Tensor norm = at::linalg_vector_norm(at::stack(norms));
  if (std::isinf(max_norm)) return norm;
  const at::Tensor scale = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  for (auto& gradient : gradients) gradient.mul_(scale.to(gradient.device()));
  return norm;
}

}  // namespace lockstep
