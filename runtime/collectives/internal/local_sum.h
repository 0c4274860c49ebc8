#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/replica_rendezvous.h"

namespace lockstep {

// How sums of the tensors that a process's replicas bring to a ReplicaRendezvous are made.

/// A part's slices of all replicas should stay in a core's second-level cache between the sum and the copies.
constexpr int64_t kSumPartBytes = 128 * 1024;

/// What the backends between processes can add up in place of a dtype.
at::ScalarType summable_dtype(at::ScalarType dtype);

/// into += value, or as `op` has it (a mean adds up), on the device of `into`.
void accumulate(c10d::ReduceOp::RedOpType op, at::Tensor& into, const at::Tensor& value);

/// Throws InvalidArgument where two replicas bring the same memory as tensor number `index`: an in-place sum
/// would count it more than once. `first_replica` is the first arrival's.
void check_own_memory(const std::vector<ReplicaRendezvous::Arrival>& arrivals, size_t index,
                      int first_replica);

}  // namespace lockstep
