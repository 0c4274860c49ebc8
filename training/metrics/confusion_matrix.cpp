#include "lockstep/training/metrics/confusion_matrix.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/metrics/internal/class_targets.h"

namespace lockstep {

ConfusionMatrix::ConfusionMatrix(int64_t num_classes) : num_classes_(num_classes) {
  if (num_classes < 2)
    throw InvalidArgument(c10::str("[ConfusionMatrix] expected 2 or more classes, but got ", num_classes));
}

void ConfusionMatrix::update(const torch::Tensor& logits, const torch::Tensor& targets,
                             const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  const auto expected = class_targets("ConfusionMatrix", logits, targets, weights);
  if (logits.size(1) != num_classes_) {
    refuse_shape("ConfusionMatrix", c10::str("logits of [n, ", num_classes_, "]"), logits.sizes());
  }
  const auto each =
      (weights.defined() ? weights.to(logits.device()) : torch::ones_like(expected)).to(torch::kDouble);
  const auto is_known = expected.ge(0).logical_and(expected.lt(num_classes_));
  const auto cell = expected.clamp(0, num_classes_ - 1) * num_classes_ + logits.argmax(1);
  if (!counts_.defined()) {
    counts_ = torch::zeros({num_classes_, num_classes_}, logits.options().dtype(torch::kDouble));
  }
  counts_.view({-1}).index_add_(0, cell.to(counts_.device()), (each * is_known).to(counts_.device()));
}

void ConfusionMatrix::reset() {
  clear_state(counts_);
}

MetricState ConfusionMatrix::state() const {
  return {counts_.defined() ? counts_ : torch::zeros({num_classes_, num_classes_}, torch::kDouble)};
}

torch::Tensor ConfusionMatrix::value(const MetricState& state) const {
  return state[0].clone();
}

}  // namespace lockstep
