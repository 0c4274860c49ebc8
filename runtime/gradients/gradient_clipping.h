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

/// Parameters that are divided among ranks.
struct DividedParameters {
  std::vector<at::Tensor> parts;  ///< Of which each rank has other elements, such as slices.
  std::vector<at::Tensor> whole;  ///< Of which each rank has all elements.
  at::Tensor like;                ///< The norm has its dtype and device.
};

/// The same for divided parameters. `add_up` sums a float64 tensor of one element over the ranks in place;
/// each rank calls it once. Each element counts once in the norm, which is a scalar.
at::Tensor clip_divided_gradients(const DividedParameters& parameters, double max_norm,
                                  const std::function<void(const at::Tensor& squares)>& add_up);

}  // namespace lockstep
