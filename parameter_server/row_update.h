#pragma once

// Internal: only sources of its layer need it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/parameter_server/update_rule.h"

namespace lockstep {

/// Rows of a matrix of `columns` columns, and their gradients one after another.
template <typename T>
struct RowGradients {
  std::span<const int64_t> rows;
  int64_t columns = 0;
  const T* gradients = nullptr;
};

/// Calls `update(element of the matrix, gradient)` for all elements of the rows.
template <typename T, typename Update>
void for_each_element(const RowGradients<T>& batch, const Update& update) {
  const T* gradient = batch.gradients;
  for (const int64_t row : batch.rows) {
    const int64_t begin = row * batch.columns;
    for (int64_t column = 0; column < batch.columns; ++column) update(begin + column, gradient[column]);
    gradient += batch.columns;
  }
}

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr) {
  for_each_element(batch, [=](int64_t i, T gradient) { values[i] -= lr * gradient; });
}

/// `sums` of the squares of all gradients.
template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps) {
  for_each_element(batch, [=](int64_t i, T gradient) {
    sums[i] += gradient * gradient;
    values[i] -= lr * gradient / (std::sqrt(sums[i]) + eps);
  });
}

/// The moments of Adam; `largest` is null without AMSGrad.
template <typename T>
struct AdamMoments {
  T* first;
  T* second;
  T* largest;
};

/// Algorithm 1 of Kingma and Ba, 2014, at step `step`, 1 or more; with `rule.amsgrad` algorithm 2 of Reddi,
/// Kale and Kumar, 2018.
template <typename T>
void update_rows_by_adam(T* values, const AdamMoments<T>& moments, const RowGradients<T>& batch,
                         const AdamRule& rule, double lr, double step) {
  const T beta1 = static_cast<T>(rule.beta1);
  const T beta2 = static_cast<T>(rule.beta2);
  const T rest1 = static_cast<T>(1 - rule.beta1);
  const T rest2 = static_cast<T>(1 - rule.beta2);
  const T eps = static_cast<T>(rule.eps);
  const T rate = static_cast<T>(lr / (1 - std::pow(rule.beta1, step)));
  const T correction = static_cast<T>(std::sqrt(1 - std::pow(rule.beta2, step)));
  for_each_element(batch, [=](int64_t i, T gradient) {
    T& first = moments.first[i];
    T& second = moments.second[i];
    first = beta1 * first + rest1 * gradient;
    second = beta2 * second + rest2 * gradient * gradient;
    T used = second;
    if (moments.largest) used = moments.largest[i] = std::fmax(moments.largest[i], second);
    values[i] -= rate * first / (std::sqrt(used) / correction + eps);
  });
}

}  // namespace lockstep
