#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"

namespace lockstep {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

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
/// Sums or averages all ranks' `tensor`, and writes this rank's part to `output`, without gradients: `tensor`
/// has an equal part for each rank, one after another in memory. `output` may be this rank's part itself.
/// Throws InvalidArgument if `tensor` is not contiguous or does not have as many elements as the outputs of
/// all ranks, if the memory of `output` overlaps it in another way, and for a mean of integers.
void reduce_scatter_(c10d::Backend& backend, ReduceOp op, const at::Tensor& output, const at::Tensor& tensor);
/// Copies rank r's `tensor` into part number r of all ranks' `output`, without gradients: the inverse of
/// reduce_scatter_(), with the same parts.
void all_gather_(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& tensor);
/// Copies rank s's `inputs[r]` into rank r's `outputs[s]`, without gradients. Throws InvalidArgument if there
/// are not as many of both as ranks, or if an output's memory overlaps with an input's, and
/// CollectiveMismatch if shapes do not match.
void all_to_all_(c10d::Backend& backend, std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs);
/// Returns new tensors with the sums or means over all ranks. Differentiable any number of times. The
/// gradient is an all-reduce with the same op, so every rank must run backward through it. Throws
/// InvalidArgument for a mean of integers.
std::vector<at::Tensor> all_reduce(const BackendPointer& backend, ReduceOp op,
                                   const std::vector<at::Tensor>& tensors);
/// Concatenates the ranks' tensors along `axis` (negative: from the end) in rank order. Sizes may differ
/// along that axis only. Differentiable any number of times. The gradient is a reduce-scatter of sums, so
/// every rank must run backward through it. Throws InvalidArgument, without waiting for the others, if
/// `tensor` does not have the axis.
at::Tensor all_gather(const ReplicaBackends& channel, const at::Tensor& tensor, int64_t axis);
/// Sums or averages `tensor` over all ranks, and returns this rank's part along `axis` (negative: from the
/// end). The parts are those of torch::tensor_split(): if they cannot be equal, the first ranks get one row
/// more. Differentiable any number of times. The gradient is an all-gather, so every rank must run backward
/// through it. Throws InvalidArgument as all_gather() does, and for a mean of integers.
at::Tensor reduce_scatter(const BackendPointer& backend, ReduceOp op, const at::Tensor& tensor, int64_t axis);
/// Sends `tensors[r]` to rank r, and returns what the ranks have sent, in rank order. Shapes may differ in
/// the first dimension only. Differentiable any number of times. The gradient is an all-to-all of the
/// gradients, so every rank must run backward through it. Throws InvalidArgument if there is not one tensor
/// for each rank, all of one dtype, with equal shapes but for the first dimension.
std::vector<at::Tensor> all_to_all(const ReplicaBackends& channel, const std::vector<at::Tensor>& tensors);
/// Cuts `tensor` into equal parts along `split_axis`, sends one to each rank, and concatenates what this rank
/// gets along `concat_axis`, in rank order. Differentiable as above. Throws InvalidArgument if there is no
/// such axis, or if the parts cannot be equal.
at::Tensor all_to_all(const BackendPointer& backend, const at::Tensor& tensor, int64_t split_axis,
                      int64_t concat_axis);
/// Sends a copy of `value` to rank `destination`, which calls receive() for it. Does not wait for that.
/// Returns a number without meaning, of value zero. If `value` has history, so has the number: run backward
/// through it, and the gradient for `value` is what `destination` sends back. Messages between two ranks are
/// received in the order in which they were sent. Throws InvalidArgument if `destination` is not another
/// rank.
at::Tensor send(const ReplicaBackends& channel, const at::Tensor& value, int destination);
/// Receives what rank `source` sends into `value`, without gradients. Blocks. Throws CollectiveMismatch if it
/// sends another dtype or shape, or a value with a gradient, or has returned without sending.
void receive_(const ReplicaBackends& channel, const at::Tensor& value, int source);
/// Returns what rank `source` sends. If `options` require a gradient, backward sends the result's gradient to
/// `source`, where send() must have been given a value with history. It can be differentiated once.
at::Tensor receive(const ReplicaBackends& channel, int source, at::IntArrayRef sizes,
                   const at::TensorOptions& options);
/// Concatenates tensors along axis 0 as all_gather() does, without gradients. Throws InvalidArgument for a
/// scalar.
at::Tensor gather_rows(const ReplicaBackends& channel, const at::Tensor& tensor);

}  // namespace lockstep
