#pragma once

#include <torch/types.h>

namespace lockstep {

/// Two int64: a digest of all bits of a tensor, and how many of its elements are NaN or infinite.
///
/// The digest is the sum of the tensor's words, sign-extended, times odd numbers that depend on their places,
/// modulo 2^64. It differs where one word does, since odd numbers have inverses modulo 2^64, and where
/// several do unless by a coincidence. The words are integers of the elements' size, of half of it for
/// complex numbers.
///
/// One pass over a tensor on the CPU, by ATen's threads, after a copy of one that is not contiguous;
/// elsewhere by operators on the tensor's device, where the result lies, without waiting for it.
torch::Tensor digest_of(const torch::Tensor& tensor);

/// The same by operators alone, for tensors on any device.
torch::Tensor digest_by_operators(const torch::Tensor& tensor);

}  // namespace lockstep
