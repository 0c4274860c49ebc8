// Strategy::reduce() and gather(), which combine the replicas' results.

#include <c10/util/StringUtil.h>

#include <exception>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

/// Returns the sum of all workers' tensors on the device of `own`.
torch::Tensor sum_over_workers(WorkerGroup& workers, const torch::Tensor& own) {
  if (own.layout() == torch::kStrided) return workers.sum(own).to(own.device());
  const torch::Tensor coalesced = own.coalesce();
  std::vector<torch::Tensor> indices;
  std::vector<torch::Tensor> values;
  for (auto& of_worker : workers.gather_tensors({coalesced.indices(), coalesced.values()})) {
    indices.push_back(std::move(of_worker.at(0)));
    values.push_back(std::move(of_worker.at(1)));
  }
  return torch::sparse_coo_tensor(torch::cat(indices, 1), torch::cat(values), own.sizes())
      .coalesce()
      .to(own.device());
}

}  // namespace

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                               std::optional<int64_t> axis) try {
  const auto& local = values.local_values();
  const Devices destination{devices()[0]};
  const auto& workers = core_->config.workers;
  if (!axis) {
    if (!workers) return cross_device_ops().reduce(op, local, destination)[0];
    const auto here = cross_device_ops().reduce(ReduceOp::kSum, local, destination)[0];
    const auto total = sum_over_workers(*workers, here);
    return op == ReduceOp::kMean ? total / num_replicas_ : total;
  }
  std::vector<torch::Tensor> sums;
  int64_t count = 0;
  for (size_t replica = 0; replica < local.size(); ++replica) {
    const torch::Tensor& value = local[replica];
    if (*axis < -value.dim() || *axis >= value.dim()) {
      throw InvalidArgument(c10::str("[reduce] expected an axis of a tensor with ", value.dim(),
                                     " dimensions, but got ", *axis));
    }
    with_device_errors(name().c_str(), first_replica_ + static_cast<int>(replica),
                       (*values.devices())[replica], [&] { sums.push_back(value.sum(*axis)); });
    count += value.size(*axis);
  }
  torch::Tensor total = cross_device_ops().reduce(ReduceOp::kSum, sums, destination)[0];
  if (workers) {
    total = sum_over_workers(*workers, total);
    count = workers->sum(torch::tensor({count}, torch::kLong)).item<int64_t>();
  }
  return op == ReduceOp::kMean ? total / count : total;
} catch (...) {
  rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
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
  if (const auto& workers = core_->config.workers)
    local_total = workers->sum(torch::tensor({local_total}, torch::kDouble)).item<double>();
  return op == ReduceOp::kMean ? local_total / num_replicas_ : local_total;
}

torch::Tensor Strategy::gather(const PerReplica<torch::Tensor>& values, int64_t axis) try {
  std::vector<torch::Tensor> here;
  for (const auto& value : values.local_values()) {
    if (value.dim() == 0 || axis < -value.dim() || axis >= value.dim()) {
      throw InvalidArgument(c10::str("[gather] expected an axis of a tensor with ", value.dim(),
                                     " dimensions, but got ", axis));
    }
    here.push_back(value.to(devices()[0].torch_device()));
  }
  if (const auto& workers = core_->config.workers) {
    std::vector<torch::Tensor> everywhere;
    for (auto& of_worker : workers->gather_tensors(here)) {
      for (auto& value : of_worker) everywhere.push_back(value.to(devices()[0].torch_device()));
    }
    here = std::move(everywhere);
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
} catch (...) {
  rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
}

}  // namespace lockstep
