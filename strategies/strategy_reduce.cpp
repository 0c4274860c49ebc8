// Strategy::reduce() and gather(): the replicas' results brought together.

#include <c10/util/StringUtil.h>

#include <exception>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/device_error.h"
#include "lockstep/strategies/strategy.h"

namespace lockstep {
namespace {

/// `sum(replica)` is its value's over the axis.
template <typename Sum>
torch::Tensor reduce_values(const CrossDeviceOps& ops, const LogicalDevice& destination, ReduceOp op,
                            const std::vector<torch::Tensor>& values, std::optional<int64_t> axis,
                            const Sum& sum) {
  if (!axis) return ops.reduce(op, values, {destination})[0];
  std::vector<torch::Tensor> sums;
  int64_t count = 0;
  for (const auto& value : values) {
    if (*axis < -value.dim() || *axis >= value.dim()) {
      throw InvalidArgument(c10::str("[reduce] expected an axis of a tensor with ", value.dim(),
                                     " dimensions, but got ", *axis));
    }
    sums.push_back(sum(sums.size()));
    count += value.size(*axis);
  }
  torch::Tensor total = ops.reduce(ReduceOp::kSum, sums, {destination})[0];
  return op == ReduceOp::kMean ? total / count : total;
}

torch::Tensor gather_values(const LogicalDevice& destination, const std::vector<torch::Tensor>& values,
                            int64_t axis) {
  std::vector<torch::Tensor> here;
  for (const auto& value : values) {
    if (value.dim() == 0 || axis < -value.dim() || axis >= value.dim()) {
      throw InvalidArgument(c10::str("[gather] expected an axis of a tensor with ", value.dim(),
                                     " dimensions, but got ", axis));
    }
    here.push_back(value.to(destination.torch_device()));
  }
  const auto outside = [axis](const torch::Tensor& value) {
    auto sizes = value.sizes().vec();
    if (axis < value.dim()) sizes.erase(axis < 0 ? sizes.end() + axis : sizes.begin() + axis);
    return sizes;
  };
  for (size_t i = 1; i < here.size(); ++i) {
    if (here[i].dim() == here[0].dim() && outside(here[i]) == outside(here[0])) continue;
    throw InvalidArgument(c10::str("[gather] expected sizes that differ along axis ", axis,
                                   " only, but replica 0 has ", here[0].sizes(), " and replica ", i, " has ",
                                   here[i].sizes()));
  }
  return torch::cat(here, axis);
}

}  // namespace

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                               std::optional<int64_t> axis) {
  const auto sum = [&](size_t replica) {
    try {
      return values.local_values()[replica].sum(*axis);
    } catch (const c10::OutOfMemoryError&) {  // of the value's device, not of the result's
      rethrow_from_device(std::current_exception(),
                          {name(), first_replica_ + static_cast<int>(replica), (*values.devices())[replica]});
    }
  };
  try {
    return reduce_values(cross_device_ops(), devices()[0], op, values.local_values(), axis, sum);
  } catch (...) {
    rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
  }
}

torch::Tensor Strategy::reduce(ReduceOp op, const torch::Tensor& value, std::optional<int64_t> axis) {
  if (op == ReduceOp::kSum && num_replicas_ > 1) {
    throw InvalidArgument(c10::str(
        "[", name(), "] reduce: expected a value for each replica to sum, but got one tensor for all ",
        num_replicas_));
  }
  if (!axis) return value;
  return reduce(op, PerReplica<torch::Tensor>({value}, shared_devices()), axis);
}

double Strategy::reduce_number(ReduceOp op, double local_total) const {
  return op == ReduceOp::kMean ? local_total / num_replicas_ : local_total;
}

torch::Tensor Strategy::gather(const PerReplica<torch::Tensor>& values, int64_t axis) {
  try {
    return gather_values(devices()[0], values.local_values(), axis);
  } catch (...) {
    rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
  }
}

}  // namespace lockstep
