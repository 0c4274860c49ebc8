#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

/// Clips the gradients to a joint L2 norm of `max_norm`: if the norm of all defined gradients together
/// exceeds it, scales each in place by max_norm / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_ does.
/// Returns the norm before clipping as a scalar on the first gradient's device, or zero if there are no
/// gradients. Never waits for a device. Throws InvalidArgument if `max_norm` is negative or NaN.
at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm);

/// Parameters that are divided among ranks, in one way or several (see ShardedParameter).
struct DividedParameters {
  std::vector<at::Tensor> whole;           ///< Of which each rank has all elements.
  std::vector<at::Tensor> slices;          ///< Of whole parameters.
  std::vector<at::Tensor> shards;          ///< Of whole parameters, along another axis than `slices`.
  std::vector<at::Tensor> cuts;            ///< Rows along a dimension.
  std::vector<at::Tensor> slices_of_cuts;  ///< Slices of such rows.
  std::vector<at::Tensor> uncounted;       ///< Elements that count as another rank's.
  at::Tensor like;                         ///< The norm has its dtype and device.
};

/// Sums of float64 tensors over ranks, in place. A rank calls each once, in this order; none: each rank has
/// all that the others have.
struct SquareSums {
  using Sum = std::function<void(const at::Tensor& squares)>;
  Sum over_slices = {};  ///< over the ranks that have other slices
  Sum over_shards = {};  ///< over those that have other shards
  Sum over_cuts = {};    ///< over those that have other rows
  Sum over_stages = {};  ///< over those that have other stages of a pipeline
};

/// The same for divided parameters. Each element counts once in the norm, which is a scalar.
at::Tensor clip_divided_gradients(const DividedParameters& parameters, double max_norm,
                                  const SquareSums& sums);

}  // namespace lockstep
