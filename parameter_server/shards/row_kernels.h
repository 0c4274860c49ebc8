#pragma once

#include <cstdint>
#include <span>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// Row numbers of a matrix with `columns` columns, and the rows' gradients, contiguous.
template <typename T>
struct RowGradients {
  std::span<const int64_t> rows;
  int64_t columns = 0;
  const T* gradients = nullptr;
};

/// Copies rows of a matrix with `columns` columns to contiguous memory.
template <typename T>
void copy_rows(const T* values, std::span<const int64_t> rows, int64_t columns, T* copies);

/// For each i in order, adds row `from[i]` of `values` to row `to[i]` of `sums`. Both matrices have `columns`
/// columns.
template <typename T>
void add_rows(T* sums, std::span<const int64_t> to, const T* values, std::span<const int64_t> from,
              int64_t columns);

// The functions below step rows anywhere in `values`, of float or double.

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr);

/// `sums` are the sums of squares of all gradients.
template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps);

/// Moments of Adam; `largest` is null without AMSGrad.
template <typename T>
struct AdamMoments {
  T* first;
  T* second;
  T* largest;
};

/// Algorithm 1 of Kingma and Ba, 2014, at step `step` (1 or more). With `rule.amsgrad`, algorithm 2 of Reddi,
/// Kale and Kumar, 2018.
template <typename T>
void update_rows_by_adam(T* values, const AdamMoments<T>& moments, const RowGradients<T>& batch,
                         const AdamRule& rule, double lr, double step);

}  // namespace lockstep
