#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// Steps one shard's values by the gradients that workers send. For one thread at a time.
class ShardOptimizer {
 public:
  /// `values` is changed by the steps: of float32 or float64, contiguous, on the CPU. Throws InvalidArgument
  /// for any other, and for a rule whose numbers are out of range.
  ShardOptimizer(at::Tensor values, const UpdateRule& rule);

  /// A step of all values by a gradient of their shape: torch::optim's within rounding, and bit by bit that
  /// of FusedSgd, FusedAdam and FusedAdamW. Throws InvalidArgument for a gradient of another shape or dtype,
  /// and for a learning rate that is not finite.
  void step(const at::Tensor& gradient, double lr);

  /// A step of some rows, indices of the first axis, and of what is remembered of them; the others stay as
  /// they are, whatever the rule: what a sparse gradient does in torch::optim::SGD and Adagrad, and to Adam
  /// what torch.optim.SparseAdam is in Python, but with Adam's epsilon. `rows` is an int64 vector in strictly
  /// ascending order, `gradients` has a row for each. Without any row it still counts as a step.
  ///
  /// Throws InvalidArgument as step(), for other rows or gradients than that, and for a rule with momentum or
  /// a weight decay, by which a step would change all rows.
  void step_rows(const at::Tensor& rows, const at::Tensor& gradients, double lr);
  /// Throws what step_rows() would, and steps nothing. Returns the rows.
  std::span<const int64_t> check_rows(const at::Tensor& rows, const at::Tensor& gradients, double lr) const;

  /// Gives a row these values, and remembers as little of it as in the beginning.
  void renew_row(int64_t row, const at::Tensor& values);

  /// Steps of either kind.
  int64_t num_steps() const;
  const at::Tensor& values() const { return values_; }

  /// What is remembered beside the values, by torch::optim's names, in the optimizer's own memory: to be
  /// saved, and written over to restore. Tensors of the values' shape, and "step", a scalar.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  void step_sgd(const SgdRule& rule, const at::Tensor& gradient, double lr);
  void step_adagrad(const AdagradRule& rule, const at::Tensor& gradient, double lr);
  void step_adam(const AdamRule& rule, const at::Tensor& gradient, double lr);

  const at::Tensor values_;
  const UpdateRule rule_;
  at::Tensor step_;  // float32, as the fused operators take it
  // By the rule, undefined where it has none: momentum_buffer; sum; exp_avg, exp_avg_sq and max_exp_avg_sq.
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor largest_second_;
};

}  // namespace lockstep
