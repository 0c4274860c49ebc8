#include "lockstep/parameter_server/shards/row_kernels.h"

#include <type_traits>

#include "lockstep/parameter_server/shards/row_kernel_set.h"

namespace lockstep {
namespace {

/// Kernels for the processor that runs this.
const RowKernelSet& kernel_set() {
  static const RowKernelSet& chosen = []() -> const RowKernelSet& {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return *avx2_row_kernels();
#endif
    return *baseline_row_kernels();
  }();
  return chosen;
}

template <typename T>
const RowKernels<T>& kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return kernel_set().of_float;
  } else {
    return kernel_set().of_double;
  }
}

}  // namespace

template <typename T>
void copy_rows(const T* values, std::span<const int64_t> rows, int64_t columns, T* copies) {
  kernels<T>().copy(values, rows, columns, copies);
}

template <typename T>
void add_rows(T* sums, std::span<const int64_t> to, const T* values, std::span<const int64_t> from,
              int64_t columns) {
  kernels<T>().add(sums, to, values, from, columns);
}

template <typename T>
void update_rows_by_sgd(T* values, const RowGradients<T>& batch, T lr) {
  kernels<T>().by_sgd(values, batch, lr);
}

template <typename T>
void update_rows_by_adagrad(T* values, T* sums, const RowGradients<T>& batch, T lr, T eps) {
  kernels<T>().by_adagrad(values, sums, batch, lr, eps);
}

template <typename T>
void update_rows_by_adam(T* values, const AdamMoments<T>& moments, const RowGradients<T>& batch,
                         const AdamRule& rule, double lr, double step) {
  kernels<T>().by_adam(values, moments, batch, rule, lr, step);
}

template void copy_rows(const float*, std::span<const int64_t>, int64_t, float*);
template void copy_rows(const double*, std::span<const int64_t>, int64_t, double*);
template void add_rows(float*, std::span<const int64_t>, const float*, std::span<const int64_t>, int64_t);
template void add_rows(double*, std::span<const int64_t>, const double*, std::span<const int64_t>, int64_t);
template void update_rows_by_sgd(float*, const RowGradients<float>&, float);
template void update_rows_by_sgd(double*, const RowGradients<double>&, double);
template void update_rows_by_adagrad(float*, float*, const RowGradients<float>&, float, float);
template void update_rows_by_adagrad(double*, double*, const RowGradients<double>&, double, double);
template void update_rows_by_adam(float*, const AdamMoments<float>&, const RowGradients<float>&,
                                  const AdamRule&, double, double);
template void update_rows_by_adam(double*, const AdamMoments<double>&, const RowGradients<double>&,
                                  const AdamRule&, double, double);

}  // namespace lockstep
