#include "lockstep/runtime/replicas/replica_context.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {

const ReplicaBackends& ReplicaContext::collectives() const {
  if (collectives_ == nullptr) {
    throw InvalidArgument(
        "[ReplicaContext] collectives are not available in scope, where factories run one replica after "
        "another, nor in a step whose replicas run at different times");
  }
  return *collectives_;
}

torch::Tensor ReplicaContext::all_reduce(ReduceOp op, const torch::Tensor& value) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_reduce(collectives().device, op, {value})[0];
}

std::vector<torch::Tensor> ReplicaContext::all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_reduce(collectives().device, op, values);
}

void ReplicaContext::all_reduce_(ReduceOp op, const torch::Tensor& value) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_reduce_(*collectives().device, op, {value});
}

void ReplicaContext::all_reduce_(ReduceOp op, const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_reduce_(*collectives().device, op, values);
}

torch::Tensor ReplicaContext::all_gather(const torch::Tensor& value, int64_t axis) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_gather(collectives(), value, axis);
}

int64_t ReplicaContext::sum_on_host(int64_t number) {
  const WaitClock::Wait wait(state_.waits);
  const torch::Tensor sum = torch::tensor({number}, torch::kLong);
  lockstep::all_reduce_(*collectives().host, ReduceOp::kSum, {sum});
  return sum.item<int64_t>();
}

void ReplicaContext::broadcast_(const torch::Tensor& value, int source) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::broadcast_(*collectives().device, source, {value});
}

}  // namespace lockstep
