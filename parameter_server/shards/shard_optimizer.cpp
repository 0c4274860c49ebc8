#include "lockstep/parameter_server/shards/shard_optimizer.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <optional>
#include <span>
#include <type_traits>

#include "lockstep/parameter_server/shards/huge_pages.h"
#include "lockstep/parameter_server/shards/row_kernels.h"
#include "lockstep/parameter_server/shards/row_numbers.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw InvalidArgument(c10::str("[ShardOptimizer] ", parts...));
}

void check_not_negative(const char* name, double number) {
  if (!(number >= 0)) refuse(name, ": expected 0 or more, but got ", number);
}

void check_fraction(const char* name, double number) {
  if (!(number >= 0 && number < 1)) refuse(name, ": expected 0 or more and less than 1, but got ", number);
}

void check(const SgdRule& rule) {
  check_not_negative("momentum", rule.momentum);
  check_not_negative("weight_decay", rule.weight_decay);
  if (rule.nesterov && (rule.momentum <= 0 || rule.dampening != 0))
    refuse("nesterov: expected a momentum and no dampening");
}

void check(const AdagradRule& rule) {
  check_not_negative("lr_decay", rule.lr_decay);
  check_not_negative("weight_decay", rule.weight_decay);
  check_not_negative("initial_accumulator_value", rule.initial_accumulator_value);
  check_not_negative("eps", rule.eps);
}

void check(const AdamRule& rule) {
  check_fraction("beta1", rule.beta1);
  check_fraction("beta2", rule.beta2);
  check_not_negative("weight_decay", rule.weight_decay);
  check_not_negative("eps", rule.eps);
}

void check_lr(double lr) {
  if (!std::isfinite(lr)) refuse("lr: expected a finite number, but got ", lr);
}

/// Null if each row can be stepped by itself.
const char* what_changes_all_rows(const UpdateRule& rule) {
  if (const auto* sgd = std::get_if<SgdRule>(&rule); sgd && sgd->momentum != 0) return "momentum";
  return std::visit([](const auto& any) { return any.weight_decay != 0 ? "weight_decay" : nullptr; }, rule);
}

bool is_maximizing(const UpdateRule& rule) {
  return std::visit([](const auto& any) { return any.maximize; }, rule);
}

int64_t num_rows(const at::Tensor& values) {
  return values.dim() == 0 ? 1 : values.size(0);
}

}  // namespace

ShardOptimizer::ShardOptimizer(at::Tensor values, const UpdateRule& rule)
    : values_(std::move(values)), rule_(rule), step_(at::zeros({}, at::kFloat)) {
  if (!values_.defined() || !values_.is_cpu() || values_.layout() != at::kStrided ||
      !values_.is_contiguous() ||
      (values_.scalar_type() != at::kFloat && values_.scalar_type() != at::kDouble))
    refuse("expected contiguous values of float32 or float64 on the CPU, but got ",
           values_.defined() ? values_.toString() : "none");
  std::visit([](const auto& any) { check(any); }, rule_);
  const auto filled = [&](double value) { return empty_for_random_access(values_).fill_(value); };
  if (const auto* sgd = std::get_if<SgdRule>(&rule_)) {
    if (sgd->momentum != 0) first_ = filled(0);
  } else if (const auto* adagrad = std::get_if<AdagradRule>(&rule_)) {
    first_ = filled(adagrad->initial_accumulator_value);
  } else {
    first_ = filled(0);
    second_ = filled(0);
    if (std::get<AdamRule>(rule_).amsgrad) largest_second_ = filled(0);
  }
}

void ShardOptimizer::step(const at::Tensor& gradient, double lr) {
  check_lr(lr);
  if (!gradient.defined() || gradient.layout() != at::kStrided || gradient.sizes() != values_.sizes() ||
      gradient.scalar_type() != values_.scalar_type() || !gradient.is_cpu())
    refuse("expected a gradient of ", values_.toString(), " of shape ", values_.sizes(), ", but got ",
           gradient.defined() ? c10::str(gradient.toString(), " of shape ", gradient.sizes()) : "none");
  const at::Tensor whole = gradient.contiguous();
  if (const auto* sgd = std::get_if<SgdRule>(&rule_)) {
    step_sgd(*sgd, whole, lr);
  } else if (const auto* adagrad = std::get_if<AdagradRule>(&rule_)) {
    step_adagrad(*adagrad, whole, lr);
  } else {
    step_adam(std::get<AdamRule>(rule_), whole, lr);
  }
}

void ShardOptimizer::step_sgd(const SgdRule& rule, const at::Tensor& gradient, double lr) {
  const bool is_first = num_steps() == 0;
  step_ += 1;
  std::vector<at::Tensor> momentum;
  if (first_.defined()) momentum.push_back(first_);
  at::_fused_sgd_({values_}, {gradient}, momentum, rule.weight_decay, rule.momentum, lr, rule.dampening,
                  rule.nesterov, rule.maximize, is_first);
}

void ShardOptimizer::step_adagrad(const AdagradRule& rule, const at::Tensor& gradient, double lr) {
  step_ += 1;
  at::_fused_adagrad_({values_}, {gradient}, {first_}, {step_}, lr, rule.lr_decay, rule.weight_decay,
                      rule.eps, rule.maximize);
}

void ShardOptimizer::step_adam(const AdamRule& rule, const at::Tensor& gradient, double lr) {
  step_ += 1;
  std::vector<at::Tensor> largest;
  if (rule.amsgrad) largest.push_back(largest_second_);
  const auto fused = [&](auto call) {
    call(at::TensorList({values_}), at::TensorList({gradient}), at::TensorList({first_}),
         at::TensorList({second_}), at::TensorList(largest), at::TensorList({step_}), lr, rule.beta1,
         rule.beta2, rule.weight_decay, rule.eps, rule.amsgrad, rule.maximize);
  };
  if (rule.is_decoupled) {
    fused([](auto... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    fused([](auto... arguments) { at::_fused_adam_(arguments...); });
  }
}

std::span<const int64_t> ShardOptimizer::check_rows(const at::Tensor& rows, const at::Tensor& gradients,
                                                    double lr) const {
  check_lr(lr);
  if (const char* what = what_changes_all_rows(rule_))
    refuse("a step by ", what, " changes all rows: expected gradients of all of them, but got some");
  const auto indices = ascending_row_numbers(rows, num_rows(values_), "[ShardOptimizer] ");
  auto shape = values_.sizes().vec();
  if (shape.empty()) shape.push_back(1);
  shape[0] = rows.numel();
  if (gradients.sizes() != at::IntArrayRef(shape) || gradients.scalar_type() != values_.scalar_type() ||
      gradients.layout() != at::kStrided || !gradients.is_cpu())
    refuse("expected gradients of ", values_.toString(), " of shape ", at::IntArrayRef(shape), ", but got ",
           gradients.toString(), " of shape ", gradients.sizes());
  return indices;
}

void ShardOptimizer::step_rows(const at::Tensor& rows, const at::Tensor& gradients, double lr) {
  const auto indices = check_rows(rows, gradients, lr);
  const at::Tensor whole = gradients.contiguous();
  step_ += 1;
  if (indices.empty()) return;
  AT_DISPATCH_FLOATING_TYPES(values_.scalar_type(), "step_rows", [&] {
    using T = scalar_t;
    const auto data = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
    };
    const RowGradients<T> batch{indices, whole.numel() / rows.numel(), whole.const_data_ptr<T>()};
    T* const values = data(values_);
    const double signed_lr = is_maximizing(rule_) ? -lr : lr;
    if (std::holds_alternative<SgdRule>(rule_)) {
      update_rows_by_sgd(values, batch, static_cast<T>(signed_lr));
    } else if (const auto* adagrad = std::get_if<AdagradRule>(&rule_)) {
      const double decayed = signed_lr / (1 + static_cast<double>(num_steps() - 1) * adagrad->lr_decay);
      update_rows_by_adagrad(values, data(first_), batch, static_cast<T>(decayed),
                             static_cast<T>(adagrad->eps));
    } else {
      update_rows_by_adam(values, {data(first_), data(second_), data(largest_second_)}, batch,
                          std::get<AdamRule>(rule_), signed_lr, static_cast<double>(num_steps()));
    }
  });
}

void ShardOptimizer::renew_row(int64_t row, const at::Tensor& values) {
  values_.narrow(0, row, 1).copy_(values);
  const auto* adagrad = std::get_if<AdagradRule>(&rule_);
  for (const auto& tensor : {first_, second_, largest_second_})
    if (tensor.defined()) tensor.narrow(0, row, 1).fill_(adagrad ? adagrad->initial_accumulator_value : 0);
}

int64_t ShardOptimizer::num_steps() const {
  return static_cast<int64_t>(*step_.const_data_ptr<float>());
}

std::vector<std::pair<std::string, at::Tensor>> ShardOptimizer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> named{{"step", step_}};
  const auto add = [&](const char* name, const at::Tensor& tensor) {
    if (tensor.defined()) named.emplace_back(name, tensor);
  };
  if (std::holds_alternative<SgdRule>(rule_)) {
    add("momentum_buffer", first_);
  } else if (std::holds_alternative<AdagradRule>(rule_)) {
    add("sum", first_);
  } else {
    add("exp_avg", first_);
    add("exp_avg_sq", second_);
    add("max_exp_avg_sq", largest_second_);
  }
  return named;
}

}  // namespace lockstep
