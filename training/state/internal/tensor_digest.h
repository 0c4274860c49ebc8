#pragma once

#include <torch/types.h>

namespace lockstep {

/// Returns two int64: a digest of all bits of a tensor, and the number of its elements that are NaN or
/// infinite.
///
/// The digest is the sum, modulo 2^64, of the tensor's words (sign-extended) times odd numbers that depend on
/// their positions. If one word differs, the digest differs, because odd numbers have inverses modulo 2^64;
/// if several differ, it differs except by coincidence. Words are integers of the elements' size, or half of
/// it for complex numbers.
///
/// On the CPU, makes one pass with ATen's threads, after copying a tensor that is not contiguous. Elsewhere,
/// uses operators on the tensor's device, where the result stays, without waiting for it.
torch::Tensor digest_of(const torch::Tensor& tensor);

/// Same, computed only by operators, for any device.
torch::Tensor digest_by_operators(const torch::Tensor& tensor);

}  // namespace lockstep
