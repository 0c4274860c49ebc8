// Strategy::reduce() and gather(), which combine the replicas' results.

#include <c10/util/StringUtil.h>

#include <exception>
#include <functional>
#include <map>

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

/// Replaces each tensor by the sum of all workers'. Dense tensors of one dtype are summed in one exchange.
void sum_packed_over_workers(WorkerGroup& workers, std::vector<torch::Tensor>& tensors) {
  std::map<torch::ScalarType, std::vector<size_t>> by_dtype;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].layout() == torch::kStrided) {
      by_dtype[tensors[i].scalar_type()].push_back(i);
    } else {
      tensors[i] = sum_over_workers(workers, tensors[i]);
    }
  }
  for (const auto& [dtype, positions] : by_dtype) {
    std::vector<torch::Tensor> flat;
    for (const size_t i : positions) flat.push_back(tensors[i].reshape({-1}));
    const torch::Tensor sums = sum_over_workers(workers, torch::cat(flat));
    int64_t begin = 0;
    for (const size_t i : positions) {
      tensors[i] = sums.narrow(0, begin, tensors[i].numel()).reshape(tensors[i].sizes());
      begin += tensors[i].numel();
    }
  }
}

void check_same_parts(const char* call, const std::vector<std::vector<torch::Tensor>>& leaves,
                      int first_replica) {
  const auto refuse = [&](size_t replica, const std::string& expected, const std::string& given) {
    throw InvalidArgument(c10::str("[", call, "] expected ", expected, ", as replica ", first_replica,
                                   " has, but replica ", first_replica + static_cast<int>(replica), " has ",
                                   given));
  };
  const auto count = [](size_t number) { return c10::str("a value of ", number, " tensors and numbers"); };
  const auto state = [](const torch::Tensor& tensor, size_t i) {
    return c10::str(tensor.defined() ? "a" : "an undefined", " tensor at position ", i);
  };
  for (size_t replica = 1; replica < leaves.size(); ++replica) {
    if (leaves[replica].size() != leaves[0].size())
      refuse(replica, count(leaves[0].size()), count(leaves[replica].size()));
    for (size_t i = 0; i < leaves[0].size(); ++i) {
      if (leaves[replica][i].defined() != leaves[0][i].defined())
        refuse(replica, state(leaves[0][i], i), state(leaves[replica][i], i));
    }
  }
}

/// Returns the same tensor of all replicas. Numbers, which are on the CPU, move to the replicas' devices.
std::vector<torch::Tensor> leaf_of_replicas(const std::vector<std::vector<torch::Tensor>>& leaves, size_t i,
                                            const Devices& devices) {
  std::vector<torch::Tensor> values;
  for (size_t replica = 0; replica < leaves.size(); ++replica) {
    const torch::Tensor& value = leaves[replica][i];
    values.push_back(value.dim() == 0 && value.is_cpu() ? value.to(devices[replica].torch_device()) : value);
  }
  return values;
}

/// The shape of a tensor without the axis along which it is concatenated.
std::vector<int64_t> shape_outside(const torch::Tensor& value, int64_t axis) {
  auto sizes = value.sizes().vec();
  if (axis < value.dim()) sizes.erase(axis < 0 ? sizes.end() + axis : sizes.begin() + axis);
  return sizes;
}

/// Concatenates the values of all replicas, which are on one device.
torch::Tensor concatenated(const std::vector<torch::Tensor>& values, int64_t axis) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i].dim() == values[0].dim() &&
        shape_outside(values[i], axis) == shape_outside(values[0], axis))
      continue;
    throw InvalidArgument(c10::str("[gather] expected sizes that differ along axis ", axis,
                                   " only, but replica 0 has ", values[0].sizes(), " and replica ", i,
                                   " has ", values[i].sizes()));
  }
  return torch::cat(values, axis);
}

/// Describes the parts of a value, for the comparison of workers: with their sizes, or only the number of
/// their dimensions.
std::vector<std::string> describe_parts(const std::vector<torch::Tensor>& leaves, bool with_sizes) {
  std::vector<std::string> lines{c10::str(leaves.size(), " tensors and numbers")};
  for (const auto& leaf : leaves) {
    if (!leaf.defined()) {
      lines.emplace_back("undefined");
    } else if (with_sizes) {
      lines.push_back(c10::str(c10::toString(leaf.scalar_type()), " ", leaf.sizes()));
    } else {
      lines.push_back(c10::str(c10::toString(leaf.scalar_type()), " of ", leaf.dim(), " dimensions"));
    }
  }
  return lines;
}

/// Concatenates each part over the replicas of all workers, on the device `destination`. `counts` tells which
/// of the local ranks are the first of their replica.
std::vector<torch::Tensor> gather_parts(const std::vector<std::vector<torch::Tensor>>& leaves, int64_t axis,
                                        torch::Device destination, WorkerGroup* workers,
                                        const std::function<bool(size_t local)>& counts) {
  std::vector<size_t> defined;
  std::vector<torch::Tensor> here;  // by replica, then by tensor
  for (size_t local = 0; local < leaves.size(); ++local) {
    const auto& of_replica = leaves[local];
    defined.clear();
    for (size_t i = 0; i < of_replica.size(); ++i) {
      const torch::Tensor& value = of_replica[i];
      if (!value.defined()) continue;
      if (value.dim() == 0 || axis < -value.dim() || axis >= value.dim()) {
        throw InvalidArgument(c10::str("[gather] expected an axis of a tensor with ", value.dim(),
                                       " dimensions, but got ", axis));
      }
      defined.push_back(i);
      if (counts(local)) here.push_back(value.to(destination));
    }
  }
  if (workers != nullptr) {
    std::vector<torch::Tensor> everywhere;
    for (auto& of_worker : workers->gather_tensors(here)) {
      for (auto& value : of_worker) everywhere.push_back(value.to(destination));
    }
    here = std::move(everywhere);
  }
  std::vector<torch::Tensor> results(leaves[0].size());
  for (size_t i = 0; i < defined.size(); ++i) {
    std::vector<torch::Tensor> values;
    for (size_t at = i; at < here.size(); at += defined.size()) values.push_back(here[at]);
    results[defined[i]] = concatenated(values, axis);
  }
  return results;
}

}  // namespace

namespace detail {

void check_number(const torch::Tensor& result, bool is_integer) {
  if (!is_integer || !result.is_floating_point()) return;
  throw InvalidArgument(
      "[reduce] expected the sum of an integer, but got its mean, which an integer cannot hold: return it as "
      "a "
      "tensor or as a double");
}

}  // namespace detail

/// Returns the values of this process's ranks with zeros for those that are not the first of their replica,
/// and so do not count. They stay in place: a worker may have no other ranks.
std::vector<torch::Tensor> Strategy::counted(const std::vector<torch::Tensor>& of_ranks) const {
  auto values = of_ranks;
  for (size_t local = 0; local < values.size(); ++local)
    if (!is_first_of_replica(local)) values[local] = torch::zeros_like(values[local]);
  return values;
}

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                               std::optional<int64_t> axis) try {
  const auto& local = values.local_values();
  const bool counts_all = !core_->mesh.cuts_models();
  const Devices destination{devices()[0]};
  const auto& workers = core_->config.workers;
  if (!axis) {
    if (!workers && counts_all) return cross_device_ops().reduce(op, local, destination)[0];
    const auto here =
        cross_device_ops().reduce(ReduceOp::kSum, counts_all ? local : counted(local), destination)[0];
    const auto total = workers ? sum_over_workers(*workers, here) : here;
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
    count += is_first_of_replica(replica) ? value.size(*axis) : 0;
  }
  torch::Tensor total =
      cross_device_ops().reduce(ReduceOp::kSum, counts_all ? sums : counted(sums), destination)[0];
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

std::vector<torch::Tensor> Strategy::reduce_leaves(ReduceOp op, const Leaves& leaves,
                                                   const PerReplica<torch::Tensor>::Devices& devices,
                                                   std::optional<int64_t> axis) try {
  check_same_parts("reduce", leaves, first_replica_);
  if (const auto& workers = core_->config.workers)
    workers->check_same("value given to reduce()", describe_parts(leaves[0], /*with_sizes=*/!axis));
  std::vector<torch::Tensor> results(leaves[0].size());
  std::vector<size_t> defined;
  std::vector<std::vector<torch::Tensor>> values;  // by leaf, then by replica
  for (size_t i = 0; i < results.size(); ++i) {
    if (!leaves[0][i].defined()) continue;
    defined.push_back(i);
    values.push_back(leaf_of_replicas(leaves, i, *devices));
  }
  if (values.empty()) return results;
  if (axis) {
    for (size_t i = 0; i < values.size(); ++i)
      results[defined[i]] = reduce(op, PerReplica<torch::Tensor>(values[i], devices), axis);
    return results;
  }
  const auto& workers = core_->config.workers;
  const bool divides = op == ReduceOp::kMean && (workers || core_->mesh.cuts_models());
  if (core_->mesh.cuts_models()) {
    for (auto& of_leaf : values) of_leaf = counted(of_leaf);
  }
  std::vector<torch::Tensor> reduced;
  for (auto& of_leaf :
       cross_device_ops().batch_reduce(divides ? ReduceOp::kSum : op, values, {this->devices()[0]}))
    reduced.push_back(std::move(of_leaf[0]));
  if (workers) sum_packed_over_workers(*workers, reduced);
  for (size_t i = 0; i < reduced.size(); ++i)
    results[defined[i]] = divides ? reduced[i] / num_replicas_ : reduced[i];
  return results;
} catch (...) {
  rethrow_from_devices(std::current_exception(), name(), this->devices(), first_replica_);
}

torch::Tensor Strategy::gather(const PerReplica<torch::Tensor>& values, int64_t axis) try {
  Leaves leaves;
  for (const auto& value : values.local_values()) leaves.push_back({value});
  return gather_parts(leaves, axis, devices()[0].torch_device(), core_->config.workers.get(),
                      [this](size_t local) { return is_first_of_replica(local); })[0];
} catch (...) {
  rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
}

std::vector<torch::Tensor> Strategy::gather_leaves(const Leaves& leaves, int64_t axis) try {
  check_same_parts("gather", leaves, first_replica_);
  const auto& workers = core_->config.workers;
  if (workers)
    workers->check_same("value given to gather()", describe_parts(leaves[0], /*with_sizes=*/false));
  return gather_parts(leaves, axis, devices()[0].torch_device(), workers.get(),
                      [this](size_t local) { return is_first_of_replica(local); });
} catch (...) {
  rethrow_from_devices(std::current_exception(), name(), devices(), first_replica_);
}

}  // namespace lockstep
