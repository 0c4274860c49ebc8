#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/replica_rendezvous.h"

namespace lockstep {

// Sums of the tensors that a process's replicas pass to a ReplicaRendezvous.

/// Chosen so that all replicas' slices of a part stay in a core's L2 cache between the sum and the copies.
constexpr int64_t kSumPartBytes = 128 * 1024;

/// Whether the tensor's elements can be summed in slices: it is contiguous, on the CPU.
bool can_be_cut(const at::Tensor& tensor);

/// Returns how many elements each slice of a sum of tensors like this one has: all, unless the tensors are
/// cut.
int64_t slice_elements(const at::Tensor& like, bool is_cut);

/// Returns `count` elements from `begin` on in memory order, or the tensor itself if these are all.
at::Tensor slice_of(const at::Tensor& tensor, int64_t begin, int64_t count);

/// Returns the dtype in which the backends between processes can sum values of `dtype`.
at::ScalarType summable_dtype(at::ScalarType dtype);

/// Accumulates `value` into `into` by `op` (a mean is accumulated as a sum), on the device of `into`.
void accumulate(c10d::ReduceOp::RedOpType op, at::Tensor& into, const at::Tensor& value);

/// Throws InvalidArgument if two replicas pass the same memory as output number `index`: an in-place sum
/// would count it more than once. `first_replica` is the number of the first arrival's replica.
void check_own_memory(const std::vector<ReplicaRendezvous::Arrival>& arrivals, size_t index,
                      int first_replica);

}  // namespace lockstep
