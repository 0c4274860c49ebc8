#pragma once

#include "lockstep/parameter_server/shards/row_kernels.h"

namespace lockstep {

/// The functions of row_kernels.h for one element type, compiled for one kind of processor. All kinds give
/// the same bits.
template <typename T>
struct RowKernels {
  void (*copy)(const T*, std::span<const int64_t>, int64_t, T*);
  void (*add)(T*, std::span<const int64_t>, const T*, std::span<const int64_t>, int64_t);
  void (*by_sgd)(T*, const RowGradients<T>&, T);
  void (*by_adagrad)(T*, T*, const RowGradients<T>&, T, T);
  void (*by_adam)(T*, const AdamMoments<T>&, const RowGradients<T>&, const AdamRule&, double, double);
};

struct RowKernelSet {
  RowKernels<float> of_float;
  RowKernels<double> of_double;
};

/// Return the kernels for every processor of the build's target, and for processors with AVX2; null if that
/// kind does not exist.
const RowKernelSet* baseline_row_kernels();
const RowKernelSet* avx2_row_kernels();

}  // namespace lockstep
