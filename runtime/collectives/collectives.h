#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"

namespace lockstep {

// Collectives over any c10d backend, for one rank. All block until every rank has called them, in the same
// order (over NCCL it is the tensors' stream that waits), and throw what the backend's Work::wait() throws.
// The backend is one of a channel (CollectiveChannel): others, such as a bare ProcessGroupNCCL, take no
// lists. Ranks bring the same shapes and dtypes unless said otherwise.

/// Sums or averages in place; no gradient flows through. Throws InvalidArgument for a mean of integers, and,
/// over a LocalBackend, where two ranks bring the same memory.
void all_reduce_(c10d::Backend& backend, ReduceOp op, std::vector<at::Tensor> tensors);
/// Copies rank `source`'s tensors into everyone's; no gradient flows through. Throws InvalidArgument, without
/// waiting for the others, for a source that is no rank.
void broadcast_(c10d::Backend& backend, int source, std::vector<at::Tensor> tensors);
/// New tensors with the sums or means. Differentiable, any number of times: the gradient is an all-reduce
/// with the same op, so that every rank must run backward through it. Throws InvalidArgument as all_reduce_
/// for a mean.
std::vector<at::Tensor> all_reduce(const c10::intrusive_ptr<c10d::Backend>& backend, ReduceOp op,
                                   const std::vector<at::Tensor>& tensors);
/// Concatenates the ranks' tensors along `axis` (negative: from the end) in rank order; sizes may differ on
/// that axis only. Differentiable, any number of times: the gradient is an all-reduce sum, of which each rank
/// takes its own slice, so that every rank must run backward through it.
/// Throws InvalidArgument, without waiting for the others, for an axis that the tensor does not have.
at::Tensor all_gather(const ReplicaBackends& channel, const at::Tensor& tensor, int64_t axis);
/// all_gather along axis 0, without gradient. Throws InvalidArgument for a scalar.
at::Tensor gather_rows(const ReplicaBackends& channel, const at::Tensor& tensor);

}  // namespace lockstep
