#include "lockstep/strategies/parallel/internal/expert_rows.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "lockstep/runtime/devices/internal/parallel_for.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Minimum number of elements that a thread gets.
constexpr int64_t kElementsOfThread = 32768;
/// Sums that are kept side by side, so that the compiler may use vectors.
constexpr int64_t kLanes = 16;

bool has_row_kernels(const at::Tensor& values) {
  return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
}

int64_t tokens_of_thread(int64_t features) {
  return std::max<int64_t>(kElementsOfThread / std::max<int64_t>(features, 1), 1);
}

/// Calls `visit(token, choice, row)` for each choice that has a row, of tokens from `begin` to `end`.
template <typename Visit>
void visit_rows(const at::Tensor& rows_of_tokens, int64_t num_rows, int64_t begin, int64_t end,
                const Visit& visit) {
  const int64_t choices = rows_of_tokens.size(1);
  const auto* row = rows_of_tokens.const_data_ptr<int64_t>() + begin * choices;
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t choice = token * choices; choice < (token + 1) * choices; ++choice, ++row)
      if (*row < num_rows) visit(token, choice, *row);
  }
}

// __restrict says that rows do not alias; without it the loops are not vectorised.

template <typename T>
void set_scaled(T* __restrict to, const T* __restrict from, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = factor * from[i];
}

template <typename T>
void add_scaled(T* __restrict to, const T* __restrict from, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <typename T>
T dot_product(const T* __restrict one, const T* __restrict other, int64_t count) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += one[i + lane] * other[i + lane];
  }
  T rest = 0;
  for (; i < count; ++i) rest += one[i] * other[i];
  return std::accumulate(lanes, lanes + kLanes, rest);
}

/// Sums the rows of each token, times their weights if these are defined. All tensors are contiguous.
template <typename T>
at::Tensor summed(const at::Tensor& rows, const at::Tensor& weights, const at::Tensor& rows_of_tokens) {
  const int64_t tokens = rows_of_tokens.size(0);
  const int64_t features = rows.size(1);
  auto sums = at::empty({tokens, features}, rows.options());
  const auto* from = rows.const_data_ptr<T>();
  const auto* weight = weights.defined() ? weights.const_data_ptr<T>() : nullptr;
  auto* to = sums.template mutable_data_ptr<T>();
  parallel_for(0, tokens, tokens_of_thread(features), [&](int64_t begin, int64_t end) {
    int64_t filled = begin;  // tokens before it have a sum
    const auto fill_before = [&](int64_t token) {
      if (filled < token) std::fill(to + filled * features, to + token * features, T(0));
    };
    visit_rows(rows_of_tokens, rows.size(0), begin, end, [&](int64_t token, int64_t choice, int64_t row) {
      const T factor = weight != nullptr ? weight[choice] : T(1);
      const T* values = from + row * features;
      T* sum = to + token * features;
      if (filled > token) {
        add_scaled(sum, values, factor, features);
        return;
      }
      fill_before(token);
      filled = token + 1;
      set_scaled(sum, values, factor, features);
    });
    fill_before(end);
  });
  return sums;
}

/// The gradients of rows and weights of weighted sums. All tensors are contiguous.
template <typename T>
variable_list gradients_of_sums(const at::Tensor& gradient, const at::Tensor& rows, const at::Tensor& weights,
                                const at::Tensor& rows_of_tokens) {
  const int64_t features = rows.size(1);
  auto of_rows = at::empty_like(rows);
  auto of_weights = at::zeros_like(weights);
  const auto* from = gradient.const_data_ptr<T>();
  const auto* values = rows.const_data_ptr<T>();
  const auto* weight = weights.const_data_ptr<T>();
  auto* to_rows = of_rows.template mutable_data_ptr<T>();
  auto* to_weights = of_weights.template mutable_data_ptr<T>();
  parallel_for(0, rows_of_tokens.size(0), tokens_of_thread(features), [&](int64_t begin, int64_t end) {
    visit_rows(rows_of_tokens, rows.size(0), begin, end, [&](int64_t token, int64_t choice, int64_t row) {
      const T* of_token = from + token * features;
      set_scaled(to_rows + row * features, of_token, weight[choice], features);
      to_weights[choice] = dot_product(of_token, values + row * features, features);
    });
  });
  return {of_rows, of_weights};
}

at::Tensor sums_of_rows(const at::Tensor& rows, const ExpertRows& places);

void save_places(AutogradContext* context, const ExpertRows& places) {
  context->saved_data["choices"] = places.choices;
  context->saved_data["tokens"] = places.tokens;
  context->saved_data["rows"] = places.rows;
}

ExpertRows saved_places(AutogradContext* context) {
  return {.choices = context->saved_data["choices"].toTensor(),
          .tokens = context->saved_data["tokens"].toTensor(),
          .rows = context->saved_data["rows"].toTensor()};
}

struct RowsOfTokens : torch::autograd::Function<RowsOfTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& choices,
                            const at::Tensor& token_of_row, const at::Tensor& rows_of_token) {
    save_places(context, {choices, token_of_row, rows_of_token});
    return tokens.index_select(0, token_of_row);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {sums_of_rows(gradients[0], saved_places(context)), {}, {}, {}};
  }
};

struct SumsOfRows : torch::autograd::Function<SumsOfRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& choices,
                            const at::Tensor& token_of_row, const at::Tensor& rows_of_token) {
    save_places(context, {choices, token_of_row, rows_of_token});
    if (has_row_kernels(rows)) {
      return rows.scalar_type() == at::kFloat ? summed<float>(rows.contiguous(), {}, rows_of_token)
                                              : summed<double>(rows.contiguous(), {}, rows_of_token);
    }
    const bool has_dropped = rows.size(0) < rows_of_token.numel();
    const auto all = has_dropped ? at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}) : rows;
    const auto places = rows_of_token.t().contiguous();
    auto sum = all.index_select(0, places[0]);
    for (int64_t choice = 1; choice < places.size(0); ++choice) sum += all.index_select(0, places[choice]);
    return sum;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {rows_of_tokens(gradients[0], saved_places(context)), {}, {}, {}};
  }
};

/// The same as SumsOfRows of products, by kernels for CPUs.
struct WeightedSumsOfRows : torch::autograd::Function<WeightedSumsOfRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& weights,
                            const at::Tensor& choices, const at::Tensor& token_of_row,
                            const at::Tensor& rows_of_token) {
    save_places(context, {choices, token_of_row, rows_of_token});
    context->save_for_backward({rows, weights});
    const auto values = rows.contiguous();
    const auto factors = weights.contiguous();
    return rows.scalar_type() == at::kFloat ? summed<float>(values, factors, rows_of_token)
                                            : summed<double>(values, factors, rows_of_token);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const ExpertRows places = saved_places(context);
    auto found = c10::GradMode::is_enabled() ? differentiable(gradients[0], saved[0], saved[1], places)
                                             : by_kernels(gradients[0], saved[0], saved[1], places);
    return {found[0], found[1], {}, {}, {}};
  }

  static variable_list by_kernels(const at::Tensor& gradient, const at::Tensor& rows,
                                  const at::Tensor& weights, const ExpertRows& places) {
    const auto of_sums = gradient.contiguous();
    const auto values = rows.contiguous();
    const auto factors = weights.contiguous();
    return rows.scalar_type() == at::kFloat
               ? gradients_of_sums<float>(of_sums, values, factors, places.rows)
               : gradients_of_sums<double>(of_sums, values, factors, places.rows);
  }
  /// By functions that have gradients themselves.
  static variable_list differentiable(const at::Tensor& gradient, const at::Tensor& rows,
                                      const at::Tensor& weights, const ExpertRows& places) {
    const auto of_sums = rows_of_tokens(gradient, places);
    const auto factors = weights.index_select(0, places.choices).unsqueeze(1);
    return {of_sums * factors,
            at::zeros_like(weights).index_copy(0, places.choices, (of_sums * rows).sum(1))};
  }
};

at::Tensor sums_of_rows(const at::Tensor& rows, const ExpertRows& places) {
  return SumsOfRows::apply(rows, places.choices, places.tokens, places.rows);
}

}  // namespace

at::Tensor rows_of_tokens(const at::Tensor& tokens, const ExpertRows& places) {
  return RowsOfTokens::apply(tokens, places.choices, places.tokens, places.rows);
}

at::Tensor weighted_sums_of_rows(const at::Tensor& rows, const at::Tensor& weights,
                                 const ExpertRows& places) {
  if (has_row_kernels(rows) && rows.scalar_type() == weights.scalar_type())
    return WeightedSumsOfRows::apply(rows, weights, places.choices, places.tokens, places.rows);
  return sums_of_rows(rows * weights.index_select(0, places.choices).unsqueeze(1), places);
}

}  // namespace lockstep
