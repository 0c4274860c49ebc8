#pragma once

// Included by source files that are each compiled for one kind of processor. Everything here has internal
// linkage and calls no inline function of other headers, because the linker could keep one version of it for
// all kinds.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/parameter_server/shards/row_kernel_set.h"

namespace lockstep {
namespace {

/// Calls `use(i, start of row rows[i] in each matrix)` for every i.
template <int kForWriting, typename T, typename Use, size_t kMatrices>
void for_each_row(const T* const (&matrices)[kMatrices], std::span<const int64_t> rows, int64_t columns,
                  const Use& use) {
  // Rows are scattered, so the processor can only prefetch them from their numbers.
  constexpr size_t kAhead = 8;
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  const int64_t* const numbers = rows.data();
  const size_t count = rows.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const int64_t ahead = numbers[i + kAhead] * columns;
      for (const T* const matrix : matrices)
        for (int64_t column = 0; column < columns; column += kCacheLine)
          __builtin_prefetch(matrix + ahead + column, kForWriting);
    }
    use(static_cast<int64_t>(i), numbers[i] * columns);
  }
}

/// Calls `update(start of the row in each matrix, its gradient)` for every row.
template <typename T, typename Update, size_t kMatrices>
void update_each_row(const T* const (&matrices)[kMatrices], const RowGradients<T>& batch,
                     const Update& update) {
  for_each_row<1>(matrices, batch.rows, batch.columns,
                  [&](int64_t i, int64_t begin) { update(begin, batch.gradients + i * batch.columns); });
}

template <typename T>
void copy_rows(const T* values, std::span<const int64_t> rows, int64_t columns, T* copies) {
  for_each_row<0, T>({values}, rows, columns, [&](int64_t i, int64_t begin) {
    std::memcpy(copies + i * columns, values + begin, static_cast<size_t>(columns) * sizeof(T));
  });
}

template <typename T>
void add_rows(T* sums, std::span<const int64_t> to, const T* values, std::span<const int64_t> from,
              int64_t columns) {
  const int64_t* const targets = to.data();
  for_each_row<0, T>({values}, from, columns, [&](int64_t i, int64_t begin) {
    T* __restrict sum = sums + targets[i] * columns;
    const T* __restrict value = values + begin;
    for (int64_t column = 0; column < columns; ++column) sum[column] += value[column];
  });
}

// __restrict says that a row's pointers do not alias; without it the loops are not vectorised.

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr) {
  update_each_row<T>({values}, batch, [&](int64_t begin, const T* __restrict gradient) {
    T* __restrict value = values + begin;
    for (int64_t i = 0; i < batch.columns; ++i) value[i] -= lr * gradient[i];
  });
}

template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps) {
  update_each_row<T>({values, sums}, batch, [&](int64_t begin, const T* __restrict gradient) {
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
  update_each_row<T>({values, moments.first, moments.second}, batch,
                     [&](int64_t begin, const T* __restrict gradient) {
                       T* __restrict value = values + begin;
                       T* __restrict first = moments.first + begin;
                       T* __restrict second = moments.second + begin;
                       T* __restrict largest = moments.largest ? moments.largest + begin : nullptr;
                       for (int64_t i = 0; i < batch.columns; ++i) {
                         first[i] = beta1 * first[i] + rest1 * gradient[i];
                         second[i] = beta2 * second[i] + rest2 * gradient[i] * gradient[i];
                       }
                       if (largest)
                         for (int64_t i = 0; i < batch.columns; ++i)
                           largest[i] = std::fmax(largest[i], second[i]);
                       const T* __restrict used = largest ? largest : second;
                       for (int64_t i = 0; i < batch.columns; ++i)
                         value[i] -= rate * first[i] / (std::sqrt(used[i]) / correction + eps);
                     });
}

template <typename T>
constexpr RowKernels<T> row_kernels() {
  return {.copy = copy_rows<T>,
          .add = add_rows<T>,
          .by_sgd = update_rows_by_sgd<T>,
          .by_adagrad = update_rows_by_adagrad<T>,
          .by_adam = update_rows_by_adam<T>};
}

constexpr RowKernelSet kRowKernels{.of_float = row_kernels<float>(), .of_double = row_kernels<double>()};

}  // namespace
}  // namespace lockstep
