#pragma once

#include <torch/types.h>

#include <string>

namespace lockstep {

/// Throws InvalidArgument: `[metric] expected <expected>, but got <sizes>`.
[[noreturn]] void refuse_shape(const std::string& metric, const std::string& expected, at::IntArrayRef given);

/// Returns the target classes [n] for `logits` [n, classes], on the logits' device. Integer `targets` [n] are
/// returned as they are; for one-hot targets or probabilities [n, classes], returns the index of the largest.
/// Throws InvalidArgument naming the metric for other shapes, for floating-point targets [n], and for defined
/// `weights` that are not [n].
torch::Tensor class_targets(const std::string& metric, const torch::Tensor& logits,
                            const torch::Tensor& targets, const torch::Tensor& weights);

/// Returns the scores [n] of a binary classification from `outputs` [n] or [n, 1]. Throws InvalidArgument
/// naming the metric for other shapes, for `targets` with another number of elements, and for defined
/// `weights` that are not [n].
torch::Tensor binary_scores(const std::string& metric, const torch::Tensor& outputs,
                            const torch::Tensor& targets, const torch::Tensor& weights);

}  // namespace lockstep
