#pragma once

#include <torch/types.h>

namespace lockstep {

/// Losses of each example, as compute_average_loss() and Trainer take them.

/// -log softmax(logits)[target]: `logits` are [n, classes], `targets` classes as integers [n] or
/// probabilities [n, classes]; the result is [n].
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets);

/// The mean over an example's elements of (output - target)^2: [n, ...] to [n]. Throws InvalidArgument for
/// targets of another shape.
torch::Tensor mean_squared_error(const torch::Tensor& outputs, const torch::Tensor& targets);

/// The mean over an example's elements of the cross entropy of a yes-or-no question whose logit is given:
/// [n, ...] to [n]; targets from 0 to 1 of any type. Throws InvalidArgument for targets of another shape.
torch::Tensor sigmoid_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace lockstep
