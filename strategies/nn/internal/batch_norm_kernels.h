#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::batch_norm {

// The parts of batch normalisation between which replicas exchange something. Shapes: inputs [N, C, ...],
// contiguous in their suggested memory format; anything of a channel [C]. Statistics are float64 for float64
// inputs, else float32. A CPU uses the operators of at::batch_norm itself, CUDA those made for this purpose,
// which exist there only. Called where no gradient is recorded.

/// Each channel over the global batch.
struct Statistics {
  at::Tensor mean;
  at::Tensor var;     ///< biased; undefined on CUDA
  at::Tensor invstd;  ///< 1 / sqrt(var + eps)
  at::Tensor counts;  ///< [replicas]: values a channel
};

/// Averages over the batches, updated by each; undefined where they are not kept.
struct RunningStatistics {
  at::Tensor mean;
  at::Tensor var;
  double momentum = 0;  ///< weight of the new batch
};

/// What a gradient is made of.
struct Sums {
  /// [2, C]: what the replicas have to sum, for input_gradient().
  at::Tensor shared;
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
};

/// Values a channel.
int64_t count_of(const at::Tensor& input);

/// [2 C + 1] for the other replicas: mean, spread (variance; on CUDA its inverse root) and count. Zeros
/// where there are no values.
at::Tensor local_statistics(const at::Tensor& input, double eps);
/// Combines the rows of all replicas, [replicas, 2 C + 1], and updates `running` by the mean and the unbiased
/// variance. Equal rows give equal bits. Needs more than one value a channel in all.
Statistics combine(const at::Tensor& gathered, const at::Tensor& input, const RunningStatistics& running,
                   double eps);
/// In the dtype of `input`. `weight` and `bias` may be undefined.
at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps);

/// This replica's sums.
Sums local_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                const Statistics& statistics, double eps);
/// `shared`: the sums over the replicas.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                          const Statistics& statistics, const at::Tensor& shared, double eps);

/// The same on CUDA.
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
