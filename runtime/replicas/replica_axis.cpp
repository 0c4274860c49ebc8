#include "lockstep/runtime/replicas/replica_axis.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {

size_t position_in(const std::vector<AxisPosition>& axes, const std::string& who, const std::string& axis) {
  std::vector<std::string> names;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == axis) return i;
    names.push_back(axes[i].name);
  }
  throw InvalidArgument(c10::str("[", who, "] expected an axis of the mesh (", c10::Join(", ", names),
                                 "), but got '", axis, "'"));
}

ReplicaAxis::ReplicaAxis(ReplicaState& state, AxisPosition position, const ReplicaBackends* collectives)
    : state_(state), position_(std::move(position)), collectives_(collectives) {}

const ReplicaBackends& ReplicaAxis::collectives() const {
  if (collectives_ == nullptr) {
    throw InvalidArgument(
        "[ReplicaContext] collectives are not available in scope, where factories run one replica after "
        "another, nor in a step whose replicas run at different times");
  }
  return *collectives_;
}

torch::Tensor ReplicaAxis::all_reduce(ReduceOp op, const torch::Tensor& value) {
  return all_reduce(op, std::vector<torch::Tensor>{value})[0];
}

std::vector<torch::Tensor> ReplicaAxis::all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  const auto is_sparse = [](const torch::Tensor& value) { return value.layout() == torch::kSparse; };
  if (std::none_of(values.begin(), values.end(), is_sparse))
    return lockstep::all_reduce(collectives().device, op, values);
  std::vector<torch::Tensor> dense;
  for (const auto& value : values) {
    if (is_sparse(value) && value.requires_grad())
      throw InvalidArgument("[all_reduce] expected sparse values without gradients: detach() them first");
    if (!is_sparse(value)) dense.push_back(value);
  }
  auto reduced = dense.empty() ? dense : lockstep::all_reduce(collectives().device, op, dense);
  std::vector<torch::Tensor> results;
  size_t next = 0;
  for (const auto& value : values) {
    if (!is_sparse(value)) {
      results.push_back(std::move(reduced[next++]));
      continue;
    }
    torch::Tensor sum = sum_sparse(collectives(), value);
    results.push_back(op == ReduceOp::kMean ? sum / size() : sum);
  }
  return results;
}

void ReplicaAxis::all_reduce_(ReduceOp op, const torch::Tensor& value) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_reduce_(*collectives().device, op, {value});
}

void ReplicaAxis::all_reduce_(ReduceOp op, const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_reduce_(*collectives().device, op, values);
}

torch::Tensor ReplicaAxis::all_gather(const torch::Tensor& value, int64_t axis) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_gather(collectives(), value, axis);
}

void ReplicaAxis::all_gather_(const torch::Tensor& output, const torch::Tensor& value) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_gather_(*collectives().device, output, value);
}

torch::Tensor ReplicaAxis::reduce_scatter(ReduceOp op, const torch::Tensor& value, int64_t axis) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::reduce_scatter(collectives().device, op, value, axis);
}

void ReplicaAxis::reduce_scatter_(ReduceOp op, const torch::Tensor& output, const torch::Tensor& value) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::reduce_scatter_(*collectives().device, op, output, value);
}

std::vector<torch::Tensor> ReplicaAxis::all_to_all(const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_to_all(collectives(), values);
}

torch::Tensor ReplicaAxis::all_to_all(const torch::Tensor& value, int64_t split_axis, int64_t concat_axis) {
  const WaitClock::Wait wait(state_.waits);
  return lockstep::all_to_all(collectives().device, value, split_axis, concat_axis);
}

void ReplicaAxis::all_to_all_(const std::vector<torch::Tensor>& outputs,
                              const std::vector<torch::Tensor>& values) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::all_to_all_(*collectives().device, outputs, values);
}

void ReplicaAxis::refuse_capture(const char* operation) const {
  if (state_.recording == nullptr || !state_.recording->is_capturing()) return;
  throw InvalidArgument(std::string("[") + operation +
                        "] messages cannot be part of a CudaGraph: call the function without one");
}

torch::Tensor ReplicaAxis::send(const torch::Tensor& value, int destination) {
  const WaitClock::Wait wait(state_.waits);
  refuse_capture("send");
  return lockstep::send(collectives(), value, destination);
}

torch::Tensor ReplicaAxis::receive(int source, at::IntArrayRef sizes, const torch::TensorOptions& options) {
  const WaitClock::Wait wait(state_.waits);
  refuse_capture("receive");
  return lockstep::receive(collectives(), source, sizes, options.device(state_.device.torch_device()));
}

void ReplicaAxis::receive_(const torch::Tensor& value, int source) {
  const WaitClock::Wait wait(state_.waits);
  refuse_capture("receive");
  lockstep::receive_(collectives(), value, source);
}

int64_t ReplicaAxis::sum_on_host(int64_t number) {
  const WaitClock::Wait wait(state_.waits);
  const torch::Tensor sum = torch::tensor({number}, torch::kLong);
  const ReplicaBackends& channel = collectives();
  if (channel.announce) channel.announce("sum_on_host");
  lockstep::all_reduce_(*channel.host, ReduceOp::kSum, {sum});
  return sum.item<int64_t>();
}

void ReplicaAxis::broadcast_(const torch::Tensor& value, int source) {
  const WaitClock::Wait wait(state_.waits);
  lockstep::broadcast_(*collectives().device, source, {value});
}

}  // namespace lockstep
