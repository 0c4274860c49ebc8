#pragma once

#include <cstdint>
#include <span>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// Rows of a matrix of `columns` columns, and their gradients one after another.
template <typename T>
struct RowGradients {
  std::span<const int64_t> rows;
  int64_t columns = 0;
  const T* gradients = nullptr;
};

/// The rows of a matrix of `columns` columns, one after another.
template <typename T>
void copy_rows(const T* values, std::span<const int64_t> rows, int64_t columns, T* copies);

/// Row `to[i]` of `sums` gets row `from[i]` of `values` added, for one i after another; of matrices of
/// `columns` columns.
template <typename T>
void add_rows(T* sums, std::span<const int64_t> to, const T* values, std::span<const int64_t> from,
              int64_t columns);

// Steps of rows that may lie anywhere in `values`, of float or double.

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr);

/// `sums` of the squares of all gradients.
template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps);

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
                         const AdamRule& rule, double lr, double step);

}  // namespace lockstep
