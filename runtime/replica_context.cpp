#include "lockstep/runtime/replica_context.h"

#include <algorithm>

#include "lockstep/runtime/collectives.h"
#include "lockstep/runtime/errors.h"

namespace lockstep {

const ReplicaChannel& ReplicaContext::collectives() const {
  if (collectives_ == nullptr) {
    throw InvalidArgument(
        "[ReplicaContext] collectives are not available in scope: factories run one replica after another");
  }
  return *collectives_;
}

/// CPU tensors of a replica on a GPU, such as numbers to add up, are exchanged on the host, where no device
/// is waited for.
const c10::intrusive_ptr<c10d::Backend>& ReplicaContext::backend_for(at::TensorList tensors) const {
  const ReplicaChannel& channel = collectives();
  const bool is_on_host =
      !device().is_cpu() && std::all_of(tensors.begin(), tensors.end(),
                                        [](const torch::Tensor& tensor) { return tensor.is_cpu(); });
  return is_on_host ? channel.host : channel.device;
}

torch::Tensor ReplicaContext::all_reduce(ReduceOp op, const torch::Tensor& value) {
  return lockstep::all_reduce(backend_for(value), op, {value})[0];
}

std::vector<torch::Tensor> ReplicaContext::all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values) {
  return lockstep::all_reduce(backend_for(values), op, values);
}

void ReplicaContext::all_reduce_(ReduceOp op, const torch::Tensor& value) {
  lockstep::all_reduce_(*backend_for(value), op, {value});
}

void ReplicaContext::all_reduce_(ReduceOp op, const std::vector<torch::Tensor>& values) {
  lockstep::all_reduce_(*backend_for(values), op, values);
}

torch::Tensor ReplicaContext::all_gather(const torch::Tensor& value, int64_t axis) {
  return lockstep::all_gather({backend_for(value), collectives().host}, value, axis);
}

void ReplicaContext::broadcast_(const torch::Tensor& value, int source) {
  lockstep::broadcast_(*backend_for(value), source, {value});
}

}  // namespace lockstep
