#include "lockstep/strategies/communication/cross_device_ops.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/backends/internal/grouped_channel.h"
#include "lockstep/runtime/backends/internal/nccl_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/strategies/communication/internal/shared_memory.h"

namespace lockstep {
namespace {

torch::Tensor sum_in_order(const std::vector<torch::Tensor>& values, torch::Device device) {
  torch::Tensor total = values[0].to(device) + values[1].to(device);
  for (size_t i = 2; i < values.size(); ++i) total = total + values[i].to(device);
  return total;
}

void check_destinations(const char* operation, const Devices& destinations) {
  if (destinations.empty())
    throw InvalidArgument(c10::str("[", operation, "] expected at least one destination, but got none"));
}

void check_values(const std::vector<torch::Tensor>& values) {
  if (values.empty()) throw InvalidArgument("[reduce] expected at least one value, but got none");
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i].sizes() == values[0].sizes()) continue;
    throw InvalidArgument(c10::str("[reduce] expected the same shape on every replica, but replica 0 has ",
                                   values[0].sizes(), " and replica ", i, " has ", values[i].sizes(),
                                   "; give an axis to reduce over values of different sizes"));
  }
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i].layout() == values[0].layout()) continue;
    throw InvalidArgument(c10::str("[reduce] expected the same layout on every replica, but replica 0 has ",
                                   values[0].layout(), " and replica ", i, " has ", values[i].layout()));
  }
}

bool is_sparse(const std::vector<torch::Tensor>& values) {
  return !values.empty() && values[0].layout() != torch::kStrided;
}

}  // namespace

CrossDeviceOps::CrossDeviceOps(int num_packs) : num_packs_(num_packs) {
  if (num_packs < 0)
    throw InvalidArgument(c10::str("[CrossDeviceOps] expected num_packs of 0 or more, but got ", num_packs));
}

std::unique_ptr<CollectiveChannel> CrossDeviceOps::make_grouped_channel(
    const Devices& devices, const ReplicaGroups& groups, std::chrono::milliseconds timeout) const {
  std::vector<GroupedChannel::Group> channels;
  channels.reserve(groups.groups.size());
  for (const auto& replicas : groups.groups) {
    Devices own;
    own.reserve(replicas.size());
    for (const int replica : replicas) own.push_back(devices[static_cast<size_t>(replica)]);
    auto channel = make_channel(own, timeout);
    channel->name_ranks({replicas, groups.where});
    channels.push_back({std::move(channel), replicas});
  }
  return std::make_unique<GroupedChannel>(std::move(channels));
}

std::unique_ptr<CollectiveChannel> CrossDeviceOps::make_gradient_channel(
    const Devices& devices, std::chrono::milliseconds timeout,
    const std::shared_ptr<GradientCompression>&) const {
  return make_channel(devices, timeout);
}

torch::Tensor CrossDeviceOps::sum(const std::vector<torch::Tensor>& values,
                                  const LogicalDevice& destination) const {
  return sum_in_order(values, destination.torch_device());
}

std::vector<torch::Tensor> CrossDeviceOps::reduce(ReduceOp op, const std::vector<torch::Tensor>& values,
                                                  const Devices& destinations) const {
  check_destinations("reduce", destinations);
  check_values(values);
  if (values.size() == 1) return broadcast(values[0], destinations);
  torch::Tensor result = sum(values, destinations[0]);
  if (result.layout() == torch::kSparse) result = result.coalesce();
  if (op == ReduceOp::kMean) result = result / static_cast<int64_t>(values.size());
  return broadcast(result, destinations);
}

std::vector<std::vector<torch::Tensor>> CrossDeviceOps::batch_reduce(
    ReduceOp op, const std::vector<std::vector<torch::Tensor>>& values, const Devices& destinations) const {
  check_destinations("batch_reduce", destinations);
  if (std::none_of(values.begin(), values.end(), is_sparse))
    return batch_reduce_dense(op, values, destinations);
  std::vector<std::vector<torch::Tensor>> dense;
  for (const auto& value : values) {
    if (!is_sparse(value)) dense.push_back(value);
  }
  auto reduced = batch_reduce_dense(op, dense, destinations);
  std::vector<std::vector<torch::Tensor>> results;
  size_t next = 0;
  for (const auto& value : values)
    results.push_back(is_sparse(value) ? reduce(op, value, destinations) : std::move(reduced[next++]));
  return results;
}

std::vector<std::vector<torch::Tensor>> CrossDeviceOps::batch_reduce_dense(
    ReduceOp op, const std::vector<std::vector<torch::Tensor>>& values, const Devices& destinations) const {
  std::vector<std::vector<torch::Tensor>> results;
  // A single value needs no packing, and values of a single replica are returned as they are.
  bool packable = num_packs_ > 0 && values.size() > 1 && values[0].size() > 1;
  for (const auto& value : values) {
    check_values(value);
    packable = packable && value.size() == values[0].size();
    for (size_t replica = 0; replica < value.size() && packable; ++replica) {
      packable = value[replica].scalar_type() == values[0][0].scalar_type() &&
                 value[replica].device() == values[0][replica].device();
    }
  }
  if (!packable) {
    for (const auto& value : values) results.push_back(reduce(op, value, destinations));
    return results;
  }
  std::vector<torch::Tensor> flat;
  for (size_t replica = 0; replica < values[0].size(); ++replica) {
    std::vector<torch::Tensor> pieces;
    for (const auto& value : values) pieces.push_back(value[replica].reshape({-1}));
    flat.push_back(torch::cat(pieces));
  }
  const int64_t total = flat[0].numel();
  const int64_t packs = std::min<int64_t>(num_packs_, std::max<int64_t>(total, 1));
  std::vector<std::vector<torch::Tensor>> reduced(destinations.size());
  for (int64_t pack = 0; pack < packs; ++pack) {
    const int64_t begin = pack * (total / packs);
    const int64_t length = pack + 1 == packs ? total - begin : total / packs;
    std::vector<torch::Tensor> slices;
    for (const auto& tensor : flat) slices.push_back(tensor.narrow(0, begin, length));
    const auto sums = reduce(op, slices, destinations);
    for (size_t d = 0; d < sums.size(); ++d) reduced[d].push_back(sums[d]);
  }
  std::vector<torch::Tensor> joined;
  for (const auto& pieces : reduced) joined.push_back(torch::cat(pieces));
  int64_t offset = 0;
  for (const auto& value : values) {
    std::vector<torch::Tensor> copies;
    for (const auto& tensor : joined)
      copies.push_back(tensor.narrow(0, offset, value[0].numel()).view(value[0].sizes()));
    offset += value[0].numel();
    results.push_back(std::move(copies));
  }
  return results;
}

std::vector<torch::Tensor> CrossDeviceOps::broadcast(const torch::Tensor& value,
                                                     const Devices& destinations) const {
  check_destinations("broadcast", destinations);
  std::vector<torch::Tensor> copies;
  for (const auto& device : destinations) {
    const torch::Tensor there = value.to(device.torch_device());
    // Logical devices share memory, so the second one needs a separate copy.
    const bool shared = std::any_of(copies.begin(), copies.end(),
                                    [&](const torch::Tensor& other) { return share_memory(other, there); });
    copies.push_back(shared ? there.clone() : there);
  }
  return copies;
}

ReductionToOneDevice::ReductionToOneDevice(ReductionToOneDeviceOptions options)
    : CrossDeviceOps(0), options_(std::move(options)) {
  if (!options_.reduce_to_device.empty())
    parse_device(options_.reduce_to_device);  // an unknown device is refused here, not later
}

std::unique_ptr<CollectiveChannel> ReductionToOneDevice::make_channel(
    const Devices& devices, std::chrono::milliseconds timeout) const {
  return std::make_unique<LocalChannel>(static_cast<int>(devices.size()), LocalAlgorithm::kOneDevice,
                                        timeout);
}

torch::Tensor ReductionToOneDevice::sum(const std::vector<torch::Tensor>& values,
                                        const LogicalDevice& destination) const {
  const auto device =
      (options_.reduce_to_device.empty() ? destination : parse_device(options_.reduce_to_device))
          .torch_device();
  if (!options_.accumulation) return sum_in_order(values, device);
  std::vector<torch::Tensor> here;
  for (const auto& value : values) here.push_back(value.to(device));
  return options_.accumulation(here);
}

std::unique_ptr<CollectiveChannel> HierarchicalCopyAllReduce::make_channel(
    const Devices& devices, std::chrono::milliseconds timeout) const {
  return std::make_unique<LocalChannel>(static_cast<int>(devices.size()), LocalAlgorithm::kSplitOverReplicas,
                                        timeout);
}

std::unique_ptr<CollectiveChannel> BackendAllReduce::make_channel(const Devices& devices,
                                                                  std::chrono::milliseconds timeout) const {
  return make_gradient_channel(devices, timeout, nullptr);
}

void BackendAllReduce::check_compression(const std::shared_ptr<GradientCompression>& compression) const {
  if (!compression || compression->wire_dtype()) return;
  throw InvalidArgument(c10::str("[", name_,
                                 "] expected a gradient compression that rounds to a shorter dtype, but got ",
                                 compression->name(), ", which works on the host: ring takes it"));
}

std::unique_ptr<CollectiveChannel> BackendAllReduce::make_gradient_channel(
    const Devices& devices, std::chrono::milliseconds timeout,
    const std::shared_ptr<GradientCompression>& compression) const {
  BackendChannelConfig config;
  config.devices = devices;
  config.timeout = timeout;
  if (compression) config.wire_dtype = compression->wire_dtype();
  return open_channel(std::move(config));
}

std::unique_ptr<CollectiveChannel> BackendAllReduce::open_channel(BackendChannelConfig config) const {
  check_devices(config.devices);
  prepare();
  config.op = name_;
  config.factory = factory_;
  return std::make_unique<BackendChannel>(std::move(config));
}

NcclAllReduce::NcclAllReduce(PackingOptions options)
    : BackendAllReduce("NcclAllReduce", make_nccl_backend, options) {}

void NcclAllReduce::prepare() const {
  prepare_nccl();
}

void NcclAllReduce::check_devices(const Devices& devices) const {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cuda()) {
      throw InvalidArgument(c10::str("[NcclAllReduce] expected GPUs only, but replica ", i, " is on ",
                                     devices[i].str(), "; hierarchical_copy serves it"));
    }
    if (std::find(devices.begin(), devices.begin() + static_cast<int64_t>(i), devices[i]) !=
        devices.begin() + static_cast<int64_t>(i)) {
      throw InvalidArgument(c10::str("[NcclAllReduce] expected each replica on a GPU of its own, but ",
                                     devices[i].str(), " has two; hierarchical_copy serves them"));
    }
  }
#ifndef LOCKSTEP_WITH_CUDA
  throw InvalidArgument(
      "[NcclAllReduce] this build of Lockstep has no NCCL (LOCKSTEP_CUDA=OFF); hierarchical_copy serves any "
      "devices");
#endif
}

std::shared_ptr<CrossDeviceOps> make_cross_device_ops(const std::string& name) {
  if (name == "auto") return nullptr;
  if (name == "nccl") return std::make_shared<NcclAllReduce>();
  if (name == "hierarchical_copy") return std::make_shared<HierarchicalCopyAllReduce>();
  if (name == "reduction_to_one_device") return std::make_shared<ReductionToOneDevice>();
  throw InvalidArgument(
      "[cross_device_ops] expected auto, nccl, hierarchical_copy or reduction_to_one_device, but got '" +
      name + "'");
}

}  // namespace lockstep
