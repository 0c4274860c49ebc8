#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep {

/// Returns a tensor of the parameter's shape, dtype and device that has no values: reading or writing them
/// throws, even through data(), which version counters do not notice. It takes the place of a gradient while
/// that is being summed over the replicas, so that nobody clips it or steps by it before it is complete.
///
/// `name` is the parameter's name in the error, which rethrow_pending() recognizes.
at::Tensor pending_gradient(const at::Tensor& parameter, const std::string& name);

/// Whether a gradient is one of these.
bool is_pending(const at::Tensor& gradient);

/// Throws InvalidArgument if `message`, of an error of LibTorch's, is that of a pending gradient.
void rethrow_pending(const std::string& message);

}  // namespace lockstep
