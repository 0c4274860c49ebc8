#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// The L2 norm of all defined gradients taken together; if it exceeds `max_norm`, every gradient is scaled in
/// place by max_norm / (norm + 1e-6), as in torch.nn.utils.clip_grad_norm_. Returns the norm before as a
/// scalar on the first gradient's device, zero without gradients. Never waits for a device. Throws
/// InvalidArgument for a negative or NaN `max_norm`.
at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace lockstep
