#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Why a gradient cannot be used.
enum class PendingReason : uint8_t {
  kSum,       ///< It is being summed over the replicas.
  kShards,    ///< Each replica has a part of the sum, and GradientReducer::gather() can bring them together.
  kOnlyParts  ///< Each replica has a part of the sum, and no memory for the whole.
};

/// Returns a tensor of the parameter's shape, dtype and device that has no values: reading or writing them
/// throws, even through data(), which version counters do not notice. It takes the place of a gradient while
/// that is being summed over the replicas, so that nobody clips it or steps by it before it is complete, or
/// whose sum is divided among them.
///
/// `name` is the parameter's name in the error, which rethrow_pending() recognizes.
at::Tensor pending_gradient(const at::Tensor& parameter, const std::string& name,
                            PendingReason reason = PendingReason::kSum);

/// Whether a gradient is one of these.
bool is_pending(const at::Tensor& gradient);

/// Throws InvalidArgument if `message`, of an error of LibTorch's, is that of a pending gradient.
void rethrow_pending(const std::string& message);

}  // namespace lockstep
