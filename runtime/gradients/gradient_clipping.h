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

/// Parameters that are divided among ranks, in one way or two (see ShardedParameter).
struct DividedParameters {
  std::vector<at::Tensor> whole;           ///< Of which each rank has all elements.
  std::vector<at::Tensor> slices;          ///< Of whole parameters.
  std::vector<at::Tensor> cuts;            ///< Rows along a dimension.
  std::vector<at::Tensor> slices_of_cuts;  ///< Slices of such rows.
  std::vector<at::Tensor> uncounted;       ///< Elements that count as another rank's.
  at::Tensor like;                         ///< The norm has its dtype and device.
};

/// The same for divided parameters. `over_slices` sums a float64 tensor in place over the ranks that have
/// other slices, `over_cuts` over those that have other rows, and `over_stages` over those that have other
/// stages of a pipeline; each rank calls them once, in this order. Each element counts once in the norm,
/// which is a scalar.
at::Tensor clip_divided_gradients(const DividedParameters& parameters, double max_norm,
                                  const std::function<void(const at::Tensor& squares)>& over_slices,
                                  const std::function<void(const at::Tensor& squares)>& over_cuts,
                                  const std::function<void(const at::Tensor& squares)>& over_stages = {});

}  // namespace lockstep
