#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"

namespace lockstep {

// Collectives over any c10d backend, for one rank. They block until every rank has called them, in the same
// order (over NCCL, the tensors' stream waits instead of the host), and throw what the backend's Work::wait()
// throws. The backend must come from a CollectiveChannel: others, such as a bare ProcessGroupNCCL, do not
// take lists. Shapes and dtypes must be the same on all ranks unless stated otherwise.

/// Sums or averages `tensors` in place over all ranks, without gradients. Throws InvalidArgument for a mean
/// of integers and, over a LocalBackend, if two ranks pass the same memory.
void all_reduce_(c10d::Backend& backend, ReduceOp op, std::vector<at::Tensor> tensors);
/// Copies rank `source`'s tensors into those of all ranks, without gradients. Throws InvalidArgument, without
/// waiting for the others, if `source` is not a rank.
void broadcast_(c10d::Backend& backend, int source, std::vector<at::Tensor> tensors);
/// Returns new tensors with the sums or means over all ranks. Differentiable any number of times. The
/// gradient is an all-reduce with the same op, so every rank must run backward through it. Throws
/// InvalidArgument for a mean of integers.
std::vector<at::Tensor> all_reduce(const c10::intrusive_ptr<c10d::Backend>& backend, ReduceOp op,
                                   const std::vector<at::Tensor>& tensors);
/// Concatenates the ranks' tensors along `axis` (negative: from the end) in rank order. Sizes may differ
/// along that axis only. Differentiable any number of times. The gradient is a slice of an all-reduced sum,
/// so every rank must run backward through it. Throws InvalidArgument, without waiting for the others, if
/// `tensor` does not have the axis.
at::Tensor all_gather(const ReplicaBackends& channel, const at::Tensor& tensor, int64_t axis);
/// Concatenates tensors along axis 0 as all_gather() does, without gradients. Throws InvalidArgument for a
/// scalar.
at::Tensor gather_rows(const ReplicaBackends& channel, const at::Tensor& tensor);

}  // namespace lockstep
