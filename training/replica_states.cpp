#include "lockstep/training/replica_states.h"

#include <functional>
#include <set>
#include <utility>

#include "lockstep/training/state_dict.h"

namespace lockstep {
namespace {

/// Those tensors of the state_dict that are buffers.
NamedTensors buffers_in_order(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_buffers()) names.insert(item.key());
  NamedTensors buffers;
  for (auto& [name, tensor] : state_dict(module))
    if (names.contains(name)) buffers.emplace_back(name, tensor);
  return buffers;
}

torch::Tensor to_bytes(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU).contiguous().flatten().view(torch::kUInt8);
}

}  // namespace

std::vector<at::Generator> replica_generators(Strategy& strategy) {
  return strategy.run([](ReplicaContext& replica) { return replica.generator(); }).local_values();
}

std::vector<torch::Tensor> gather_bytes(Strategy& strategy, const std::vector<torch::Tensor>& local) {
  if (strategy.num_local_replicas() == strategy.num_replicas_in_sync()) return local;
  const auto gather = [&](const std::function<torch::Tensor(size_t)>& value) {
    const auto values = strategy.run([&](ReplicaContext& replica) {
      return value(static_cast<size_t>(replica.local_replica_id())).to(replica.device());
    });
    return strategy.gather(values).to(torch::kCPU);
  };
  const auto sizes = gather([&](size_t replica) { return torch::tensor({local[replica].numel()}); });
  const auto bytes = gather([&](size_t replica) { return local[replica]; });
  const std::vector<int64_t> pieces(sizes.const_data_ptr<int64_t>(),
                                    sizes.const_data_ptr<int64_t>() + sizes.numel());
  return bytes.split_with_sizes(pieces);
}

torch::Tensor buffer_bytes(const torch::nn::Module& module) {
  std::vector<torch::Tensor> pieces{torch::empty({0}, torch::kUInt8)};
  for (const auto& [name, buffer] : buffers_in_order(module)) pieces.push_back(to_bytes(buffer));
  return torch::cat(pieces);
}

NamedTensors stack_buffers(const torch::nn::Module& module, const std::vector<torch::Tensor>& bytes) {
  NamedTensors stacked;
  int64_t begin = 0;
  for (const auto& [name, buffer] : buffers_in_order(module)) {
    const auto size = static_cast<int64_t>(buffer.nbytes());
    auto all = torch::empty({static_cast<int64_t>(bytes.size()), size}, torch::kUInt8);
    for (size_t replica = 0; replica < bytes.size(); ++replica)
      all[static_cast<int64_t>(replica)].copy_(bytes[replica].slice(0, begin, begin + size));
    std::vector<int64_t> shape{static_cast<int64_t>(bytes.size())};
    shape.insert(shape.end(), buffer.sizes().begin(), buffer.sizes().end());
    stacked.emplace_back(name, all.flatten().view(buffer.scalar_type()).view(shape));
    begin += size;
  }
  return stacked;
}

}  // namespace lockstep
