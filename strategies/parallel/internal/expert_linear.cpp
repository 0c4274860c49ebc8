#include "lockstep/strategies/parallel/internal/expert_linear.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <optional>

namespace lockstep {
namespace {

/// Returns what autocast makes of an operand of at::linear().
at::Tensor as_operand(const at::Tensor& value) {
  const auto device = value.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return value;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), value, device);
}

/// Calls `function` with each expert and the place of its rows.
void for_each_expert(const std::vector<int64_t>& counts,
                     const std::function<void(int64_t expert, int64_t begin, int64_t count)>& function) {
  int64_t begin = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    function(static_cast<int64_t>(expert), begin, counts[expert]);
    begin += counts[expert];
  }
}

struct ExpertLinear : torch::autograd::Function<ExpertLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const std::vector<int64_t>& counts) {
    context->save_for_backward({rows, weight});
    context->saved_data["counts"] = counts;
    context->saved_data["has_bias"] = bias.has_value();
    auto results = at::empty({rows.size(0), weight.size(1)}, rows.options());
    for_each_expert(counts, [&](int64_t expert, int64_t begin, int64_t count) {
      auto result = results.narrow(0, begin, count);
      const auto own = rows.narrow(0, begin, count);
      const auto transposed = weight.select(0, expert).t();
      if (bias) {
        at::addmm_out(result, bias->select(0, expert), own, transposed);
      } else {
        at::mm_out(result, own, transposed);
      }
    });
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& rows = saved[0];
    const auto& weight = saved[1];
    const auto& gradient = gradients[0];
    const auto counts = context->saved_data["counts"].toIntVector();
    const bool is_differentiable = c10::GradMode::is_enabled();  // of gradients of gradients
    at::Tensor of_rows, of_weight, of_bias;
    if (context->needs_input_grad(0)) {
      of_rows = is_differentiable ? differentiable_of_rows(gradient, weight, counts)
                                  : at::empty_like(rows, at::MemoryFormat::Contiguous);
    }
    if (context->needs_input_grad(1)) {
      of_weight = is_differentiable ? differentiable_of_weight(gradient, rows, counts)
                                    : at::empty_like(weight, at::MemoryFormat::Contiguous);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      std::vector<at::Tensor> sums;
      for (const auto& part : gradient.split_with_sizes(counts, 0)) sums.push_back(part.sum(0));
      of_bias = at::stack(sums);
    }
    if (!is_differentiable) {
      for_each_expert(counts, [&](int64_t expert, int64_t begin, int64_t count) {
        const auto own = gradient.narrow(0, begin, count);
        if (of_rows.defined()) {
          auto result = of_rows.narrow(0, begin, count);
          at::mm_out(result, own, weight.select(0, expert));
        }
        if (of_weight.defined()) {
          auto result = of_weight.select(0, expert);
          at::mm_out(result, own.t(), rows.narrow(0, begin, count));
        }
      });
    }
    return {of_rows, of_weight, of_bias, {}};
  }

  static at::Tensor differentiable_of_rows(const at::Tensor& gradient, const at::Tensor& weight,
                                           const std::vector<int64_t>& counts) {
    std::vector<at::Tensor> parts;
    for_each_expert(counts, [&](int64_t expert, int64_t begin, int64_t count) {
      parts.push_back(gradient.narrow(0, begin, count).mm(weight.select(0, expert)));
    });
    return at::cat(parts, 0);
  }

  static at::Tensor differentiable_of_weight(const at::Tensor& gradient, const at::Tensor& rows,
                                             const std::vector<int64_t>& counts) {
    std::vector<at::Tensor> parts;
    for_each_expert(counts, [&](int64_t /*expert*/, int64_t begin, int64_t count) {
      parts.push_back(gradient.narrow(0, begin, count).t().mm(rows.narrow(0, begin, count)));
    });
    return at::stack(parts);
  }
};

}  // namespace

at::Tensor expert_linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                         const std::vector<int64_t>& counts) {
  std::optional<at::Tensor> added;
  if (bias.defined()) added = as_operand(bias);
  return ExpertLinear::apply(as_operand(rows), as_operand(weight), added, counts);
}

}  // namespace lockstep
