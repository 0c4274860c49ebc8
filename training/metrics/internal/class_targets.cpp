#include "lockstep/training/metrics/internal/class_targets.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void refuse_shape(const std::string& metric, const std::string& expected, at::IntArrayRef given) {
  throw InvalidArgument(c10::str("[", metric, "] expected ", expected, ", but got ", given));
}

torch::Tensor class_targets(const std::string& metric, const torch::Tensor& logits,
                            const torch::Tensor& targets, const torch::Tensor& weights) {
  if (!targets.defined())
    throw InvalidArgument(c10::str("[", metric, "] expected targets, but got a batch without"));
  if (logits.dim() != 2 || logits.size(1) == 0)
    refuse_shape(metric, "logits of [n, classes]", logits.sizes());
  const auto examples = logits.sizes().slice(0, 1);
  const bool one_hot = targets.dim() == 2;
  if (one_hot ? targets.sizes() != logits.sizes() : targets.sizes() != examples) {
    refuse_shape(metric, c10::str("integer targets of ", examples, " or one-hot ones of ", logits.sizes()),
                 targets.sizes());
  }
  if (!one_hot && (targets.is_floating_point() || targets.is_complex())) {
    throw InvalidArgument(
        c10::str("[", metric, "] expected integer targets, but got ", c10::toString(targets.scalar_type())));
  }
  if (weights.defined() && weights.sizes() != examples)
    refuse_shape(metric, c10::str("weights of ", examples), weights.sizes());
  return (one_hot ? targets.argmax(1) : targets).to(logits.device());
}

torch::Tensor binary_scores(const std::string& metric, const torch::Tensor& outputs,
                            const torch::Tensor& targets, const torch::Tensor& weights) {
  if (!targets.defined())
    throw InvalidArgument(c10::str("[", metric, "] expected targets, but got a batch without"));
  if (outputs.dim() != 1 && (outputs.dim() != 2 || outputs.size(1) != 1))
    refuse_shape(metric, "scores of [n] or [n, 1]", outputs.sizes());
  const auto examples = outputs.sizes().slice(0, 1);
  if (targets.numel() != outputs.size(0) || targets.dim() > outputs.dim())
    refuse_shape(metric, c10::str("targets of ", examples), targets.sizes());
  if (weights.defined() && weights.sizes() != examples)
    refuse_shape(metric, c10::str("weights of ", examples), weights.sizes());
  return outputs.reshape({-1});
}

}  // namespace lockstep
