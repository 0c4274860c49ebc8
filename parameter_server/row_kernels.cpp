#include "lockstep/parameter_server/row_kernels.h"

#include <cmath>
#include <cstddef>
#include <cstring>

namespace lockstep {
namespace {

/// Calls `use(number i of those named, where row rows[i] begins in the matrix)` for all of them.
template <int kForWriting, typename T, typename Use>
void for_each_row(const T* values, std::span<const int64_t> rows, int64_t columns, const Use& use) {
  // Rows lie anywhere, so that only their numbers tell the processor which memory comes next.
  constexpr size_t kAhead = 8;
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      const T* const ahead = values + rows[i + kAhead] * columns;
      for (int64_t column = 0; column < columns; column += kCacheLine)
        __builtin_prefetch(ahead + column, kForWriting);
    }
    use(static_cast<int64_t>(i), rows[i] * columns);
  }
}

/// Calls `update(where the row begins in the matrix, its gradient)` for all rows.
template <typename T, typename Update>
void update_each_row(const T* values, const RowGradients<T>& batch, const Update& update) {
  for_each_row<1>(values, batch.rows, batch.columns,
                  [&](int64_t i, int64_t begin) { update(begin, batch.gradients + i * batch.columns); });
}

}  // namespace

template <typename T>
void copy_rows(const T* values, std::span<const int64_t> rows, int64_t columns, T* copies) {
  for_each_row<0>(values, rows, columns, [&](int64_t i, int64_t begin) {
    std::memcpy(copies + i * columns, values + begin, static_cast<size_t>(columns) * sizeof(T));
  });
}

// The pointers of a row are told to be of different memory, without which its loop is not vectorised.

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr) {
  update_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
    T* __restrict value = values + begin;
    for (int64_t i = 0; i < batch.columns; ++i) value[i] -= lr * gradient[i];
  });
}

template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps) {
  update_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
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
  update_each_row(values, batch, [&](int64_t begin, const T* __restrict gradient) {
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

template void copy_rows(const float*, std::span<const int64_t>, int64_t, float*);
template void copy_rows(const double*, std::span<const int64_t>, int64_t, double*);
template void update_rows_by_sgd(float*, const RowGradients<float>&, float);
template void update_rows_by_sgd(double*, const RowGradients<double>&, double);
template void update_rows_by_adagrad(float*, float*, const RowGradients<float>&, float, float);
template void update_rows_by_adagrad(double*, double*, const RowGradients<double>&, double, double);
template void update_rows_by_adam(float*, const AdamMoments<float>&, const RowGradients<float>&,
                                  const AdamRule&, double, double);
template void update_rows_by_adam(double*, const AdamMoments<double>&, const RowGradients<double>&,
                                  const AdamRule&, double, double);

}  // namespace lockstep
