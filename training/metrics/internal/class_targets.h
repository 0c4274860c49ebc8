#pragma once

#include <torch/types.h>

#include <string>

namespace lockstep {

/// Throws InvalidArgument: `[metric] expected <expected>, but got <sizes>`.
[[noreturn]] void refuse_shape(const std::string& metric, const std::string& expected, at::IntArrayRef given);

/// The classes [n] that `targets` name beside `logits` [n, classes], on the logits' device: integers [n] as
/// they are, of one-hot ones or probabilities [n, classes] the largest. Throws InvalidArgument naming the
/// metric for other shapes, floating-point targets [n], and for `weights` that are defined and not [n].
torch::Tensor class_targets(const std::string& metric, const torch::Tensor& logits,
                            const torch::Tensor& targets, const torch::Tensor& weights);

/// The scores [n] of a yes-or-no question: `outputs` [n] or [n, 1]. Throws InvalidArgument naming the metric
/// for other shapes, for `targets` of another number of elements, and for `weights` that are defined and not
/// [n].
torch::Tensor binary_scores(const std::string& metric, const torch::Tensor& outputs,
                            const torch::Tensor& targets, const torch::Tensor& weights);

}  // namespace lockstep
