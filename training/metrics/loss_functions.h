#pragma once

#include <torch/types.h>

namespace lockstep {

// Losses of each example, for compute_average_loss() and Trainer.

/// Returns the cross entropy -log softmax(logits)[target] of each example, [n]. `logits` are [n, classes];
/// `targets` are integer classes [n] or probabilities [n, classes].
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets);

/// Returns the mean of (output - target)^2 over each example's elements: [n, ...] to [n]. Throws
/// InvalidArgument if the targets have another shape.
torch::Tensor mean_squared_error(const torch::Tensor& outputs, const torch::Tensor& targets);

/// Returns the mean over each example's elements of the binary cross entropy of its logits: [n, ...] to [n].
/// Targets are from 0 to 1, of any dtype. Throws InvalidArgument if they have another shape.
torch::Tensor sigmoid_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace lockstep
