#include "lockstep/training/metrics/loss_functions.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

// Outputs of [n, 1] and targets of [n] would silently broadcast to n * n differences.
void check_same_shape(const char* loss, const torch::Tensor& outputs, const torch::Tensor& targets) {
  if (targets.defined() && outputs.sizes() == targets.sizes()) return;
  throw InvalidArgument(targets.defined()
                            ? c10::str("[", loss, "] expected targets of the outputs' shape ",
                                       outputs.sizes(), ", but got ", targets.sizes())
                            : c10::str("[", loss, "] expected targets, but got a batch without"));
}

/// Autocast may produce outputs of a type too short for the targets.
torch::Tensor in_full(const torch::Tensor& outputs) {
  return at::isReducedFloatingType(outputs.scalar_type()) ? outputs.to(torch::kFloat) : outputs;
}

torch::Tensor mean_of_each(const torch::Tensor& losses) {
  return losses.dim() < 2 ? losses : losses.flatten(1).mean(1);
}

}  // namespace

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets) {
  if (!targets.defined()) throw InvalidArgument("[cross_entropy] expected targets, but got a batch without");
  return torch::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
}

torch::Tensor mean_squared_error(const torch::Tensor& outputs, const torch::Tensor& targets) {
  check_same_shape("mean_squared_error", outputs, targets);
  const auto exact = in_full(outputs);
  return mean_of_each(torch::mse_loss(exact, targets.to(exact.scalar_type()), at::Reduction::None));
}

torch::Tensor sigmoid_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets) {
  check_same_shape("sigmoid_cross_entropy", logits, targets);
  const auto exact = in_full(logits);
  return mean_of_each(torch::binary_cross_entropy_with_logits(exact, targets.to(exact.scalar_type()), {}, {},
                                                              at::Reduction::None));
}

}  // namespace lockstep
