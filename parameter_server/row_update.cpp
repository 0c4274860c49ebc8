#include "lockstep/parameter_server/row_update.h"

#include <cmath>
#include <cstddef>

namespace lockstep {
namespace {

/// Calls `update(where the row begins in the matrix, its gradient)` for all rows.
template <typename T, typename Update>
void for_each_row(const T* values, const RowGradients<T>& batch, const Update& update) {
  // Rows lie anywhere, so that only their numbers tell the processor which memory comes next.
  constexpr size_t kAhead = 8;
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  const T* gradient = batch.gradients;
  for (size_t i = 0; i < batch.rows.size(); ++i, gradient += batch.columns) {
    if (i + kAhead < batch.rows.size()) {
      const T* const ahead = values + batch.rows[i + kAhead] * batch.columns;
      for (int64_t column = 0; column < batch.columns; column += kCacheLine)
        __builtin_prefetch(ahead + column, 1);
    }
    update(batch.rows[i] * batch.columns, gradient);
  }
}

}  // namespace

// The pointers of a row are told to be of different memory, without which its loop is not vectorised.

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr) {
  for_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
    T* __restrict value = values + begin;
    for (int64_t i = 0; i < batch.columns; ++i) value[i] -= lr * gradient[i];
  });
}

template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps) {
  for_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
    T* __restrict value = values + begin;
    T* __restrict sum = sums + begin;
    for (int64_t i = 0; i < batch.columns; ++i) {
      sum[i] += gradient[i] * gradient[i];
      value[i] -= lr * gradient[i] / (std::sqrt(sum[i]) + eps);
    }
  });
}

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
  for_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
    T* __restrict value = values + begin;
    T* __restrict first = moments.first + begin;
    T* __restrict second = moments.second + begin;
    T* __restrict largest = moments.largest ? moments.largest + begin : nullptr;
    for (int64_t i = 0; i < batch.columns; ++i) {
      first[i] = beta1 * first[i] + rest1 * gradient[i];
      second[i] = beta2 * second[i] + rest2 * gradient[i] * gradient[i];
    }
    if (largest)
      for (int64_t i = 0; i < batch.columns; ++i) largest[i] = std::fmax(largest[i], second[i]);
    const T* __restrict used = largest ? largest : second;
    for (int64_t i = 0; i < batch.columns; ++i)
      value[i] -= rate * first[i] / (std::sqrt(used[i]) / correction + eps);
  });
}

template void update_rows_by_sgd(float*, const RowGradients<float>&, float);
template void update_rows_by_sgd(double*, const RowGradients<double>&, double);
template void update_rows_by_adagrad(float*, float*, const RowGradients<float>&, float, float);
template void update_rows_by_adagrad(double*, double*, const RowGradients<double>&, double, double);
template void update_rows_by_adam(float*, const AdamMoments<float>&, const RowGradients<float>&,
                                  const AdamRule&, double, double);
template void update_rows_by_adam(double*, const AdamMoments<double>&, const RowGradients<double>&,
                                  const AdamRule&, double, double);

}  // namespace lockstep
