#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::batch_norm {

// The parts of batch normalisation between which replicas exchange values. Inputs are [N, C, ...], contiguous
// in their suggested memory format; per-channel tensors are [C]. Statistics are float64 for float64 inputs,
// otherwise float32. CPUs use the operators of at::batch_norm itself; CUDA has dedicated ones, which exist
// only there. Call these without recording gradients.

/// Per-channel statistics over the global batch.
struct Statistics {
  at::Tensor mean;
  at::Tensor var;     ///< biased; undefined on CUDA
  at::Tensor invstd;  ///< 1 / sqrt(var + eps)
  at::Tensor counts;  ///< [replicas]: values per channel
};

/// Running averages, updated by each batch; undefined if they are not kept.
struct RunningStatistics {
  at::Tensor mean;
  at::Tensor var;
  double momentum = 0;  ///< weight of the new batch
};

/// Sums that gradients are computed from.
struct Sums {
  /// [2, C]: to be summed over the replicas for input_gradient().
  at::Tensor shared;
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
};

/// Returns the number of values per channel.
int64_t count_of(const at::Tensor& input);

/// Returns [2 C + 1] for the other replicas: mean, spread and count. The spread is the biased variance; on
/// CUDA it is 1 / sqrt(variance + eps). Without values, all are 0, but on CUDA the spread is 1, because
/// combine() divides by it there.
at::Tensor local_statistics(const at::Tensor& input, double eps);
/// Combines the rows of all replicas, [replicas, 2 C + 1], and updates `running` with the mean and the
/// unbiased variance. Equal rows give equal bits. Requires more than one value per channel in total.
Statistics combine(const at::Tensor& gathered, const at::Tensor& input, const RunningStatistics& running,
                   double eps);
/// Returns the result in the dtype of `input`. `weight` and `bias` may be undefined.
at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps);

/// Returns this replica's sums.
Sums local_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                const Statistics& statistics, double eps);
/// `shared` is summed over the replicas.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                          const Statistics& statistics, const at::Tensor& shared, double eps);

/// The same functions for CUDA.
namespace cuda {
at::Tensor local_statistics(const at::Tensor& input, double eps);
Statistics combine(const at::Tensor& gathered, const at::Tensor& input, const RunningStatistics& running,
                   double eps);
at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps);
Sums local_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                const Statistics& statistics);
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                          const Statistics& statistics, const at::Tensor& shared);
}  // namespace cuda

}  // namespace lockstep::batch_norm
