#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// Steps one shard's values by gradients from workers. Not thread-safe.
class ShardOptimizer {
 public:
  /// Steps change `values` in place: float32 or float64, contiguous, on the CPU. Throws InvalidArgument for
  /// any other tensor, and for a rule with numbers out of range.
  ShardOptimizer(at::Tensor values, const UpdateRule& rule);

  /// Steps all values by a gradient of their shape. Equals torch::optim within rounding, and FusedSgd,
  /// FusedAdam and FusedAdamW bit for bit. Throws InvalidArgument if the gradient has another shape or dtype,
  /// or if the learning rate is not finite.
  void step(const at::Tensor& gradient, double lr);

  /// Steps some rows (indices of the first axis) and their state; the others stay unchanged, whatever the
  /// rule. This equals a sparse gradient in torch::optim::SGD and Adagrad; for Adam it equals Python's
  /// torch.optim.SparseAdam, but with Adam's epsilon. `rows` is a strictly ascending int64 vector;
  /// `gradients` has one row for each. Without any rows the call still counts as a step.
  ///
  /// Throws InvalidArgument as step() does, for invalid rows or gradients, and for a rule with momentum or
  /// weight decay, because its steps would change all rows.
  void step_rows(const at::Tensor& rows, const at::Tensor& gradients, double lr);
  /// Throws what step_rows() would throw, without stepping. Returns the rows.
  std::span<const int64_t> check_rows(const at::Tensor& rows, const at::Tensor& gradients, double lr) const;

  /// Sets a row to these values and resets its state.
  void renew_row(int64_t row, const at::Tensor& values);

  /// Returns the number of steps of both kinds.
  int64_t num_steps() const;
  const at::Tensor& values() const { return values_; }

  /// Returns views of the optimizer's state, by torch::optim's names; read them to save, write to them to
  /// restore. Tensors of the values' shape, and the scalar "step".
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  void step_sgd(const SgdRule& rule, const at::Tensor& gradient, double lr);
  void step_adagrad(const AdagradRule& rule, const at::Tensor& gradient, double lr);
  void step_adam(const AdamRule& rule, const at::Tensor& gradient, double lr);

  const at::Tensor values_;
  const UpdateRule rule_;
  at::Tensor step_;  // float32, as the fused operators require
  // Depending on the rule (undefined if unused): momentum_buffer; sum; exp_avg, exp_avg_sq and
  // max_exp_avg_sq.
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor largest_second_;
};

}  // namespace lockstep
