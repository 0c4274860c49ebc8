#include "lockstep/training/state/internal/state_digests.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/state/internal/sharded_states.h"
#include "lockstep/training/state/internal/tensor_digest.h"
#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/state/optimizer_state.h"

namespace lockstep {
namespace {

/// Digests of one replica's tensors.
struct NamedDigests {
  std::vector<std::string> names;
  torch::Tensor digests;          // int64 [names, 2], on the CPU
  std::vector<std::string> axes;  // along which ranks have other parts, or empty
};

/// Returns the axis along which ranks have other parts of the tensor, or an empty name.
std::string divided_along(const torch::Tensor& tensor) {
  const auto* part = sharded_parameter_of(tensor);
  return part == nullptr ? "" : part->axis;
}

/// Returns the axis along which ranks have other parts of some of the optimizer's parameters: of slices, if
/// it has some. An optimizer has slices along one axis, and parts along one dimension along one.
std::string divided_along(const torch::optim::Optimizer& optimizer) {
  std::string axis;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (is_slice(parameter)) return divided_along(parameter);
      if (axis.empty()) axis = divided_along(parameter);
    }
  }
  return axis;
}

/// Returns for each rank the first one that holds the same parts of parameters that are divided along an
/// axis.
std::vector<int> parts_of_ranks(const Mesh& mesh, const std::string& axis) {
  std::vector<int> parts(static_cast<size_t>(mesh.size()), 0);
  if (!mesh.has(axis)) return parts;  // of a single rank
  for (const auto& group : mesh.groups_across(axis))
    for (const int rank : group) parts[static_cast<size_t>(rank)] = group.front();
  return parts;
}

/// Returns two int64 like digest_of(): 0, since replicas have other parts, and the number of elements of the
/// optimizer's state of its part that are NaN or infinite.
torch::Tensor digest_of_part(const torch::optim::Optimizer& optimizer, const ShardedParameters& part) {
  std::vector<size_t> groups;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group)
    groups.insert(groups.end(), optimizer.param_groups()[group].params().size(), group);
  torch::Tensor digest = torch::zeros({2}, torch::kLong);
  for (size_t slice = 0; slice < part.slices().size(); ++slice) {
    const size_t group = groups[part.slices()[slice].parameter];
    for (const auto& [name, value] : state_of_tensor(optimizer, group, part.tensor(slice)).entries) {
      const torch::Tensor of_value = digest_of(*value.get_if<torch::Tensor>());
      digest = digest.to(of_value.device());
      digest[1] += of_value[1];
    }
  }
  return digest;
}

/// `part` is the replica's part of the optimizer's state, or null if its state is not divided.
NamedDigests digests_of(const torch::nn::Module& module, const torch::optim::Optimizer* optimizer,
                        const ShardedParameters* part) {
  const torch::NoGradGuard no_grad;
  NamedDigests all;
  std::vector<torch::Tensor> digests;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided) return false;
    all.names.push_back(name);
    all.axes.emplace_back();
    digests.push_back(digest_of(tensor));
    return true;
  };
  for (const auto& item : module.named_parameters()) {
    if (!add("parameter " + item.key(), item.value())) continue;
    all.axes.back() = divided_along(item.value());
    // A parameter that is not trained, such as a mask, may hold infinities on purpose.
    if (!item.value().requires_grad()) digests.back()[1] = 0;
  }
  if (optimizer != nullptr) {
    const std::string axis = divided_along(*optimizer);
    visit_tensors(StateValue(optimizer_state(*optimizer)),
                  [&](const std::string& name, const torch::Tensor& tensor) {
                    if (add("optimizer " + name, tensor)) all.axes.back() = axis;
                  });
    if (part != nullptr) {
      all.names.emplace_back("optimizer's part of the state");
      all.axes.emplace_back();
      digests.push_back(digest_of_part(*optimizer, *part));
    }
  }
  // Gathers the digests on one device first: each copy to the CPU waits for the device.
  if (digests.empty()) {
    all.digests = torch::zeros({0, 2}, torch::kLong);
    return all;
  }
  const auto device = digests.front().device();
  for (auto& digest : digests) digest = digest.to(device);
  all.digests = torch::stack(digests).cpu();
  return all;
}

/// Returns the type of each rank's device. A collective of the workers.
std::vector<c10::DeviceType> device_types_of_ranks(Strategy& strategy) {
  std::vector<torch::Tensor> own;
  for (const auto& device : strategy.devices())
    own.push_back(torch::tensor({static_cast<int64_t>(device.type)}, torch::kLong));
  std::vector<c10::DeviceType> types;
  for (const auto& type : gather_of_replicas(strategy, own))
    types.push_back(static_cast<c10::DeviceType>(type.item<int64_t>()));
  return types;
}

/// Returns the replica that differs from most others; of two, the second.
size_t odd_one_out(const std::vector<int64_t>& digests) {
  std::map<int64_t, size_t> counts;
  for (const int64_t digest : digests) ++counts[digest];
  size_t odd = 1;
  size_t fewest = digests.size() + 1;
  for (size_t replica = digests.size(); replica-- > 0;) {
    if (counts[digests[replica]] < fewest) {
      fewest = counts[digests[replica]];
      odd = replica;
    }
  }
  return odd;
}

}  // namespace

StateDigests digest_states(Strategy& strategy, const std::vector<ModulePointer>& modules,
                           const std::vector<torch::optim::Optimizer*>& optimizers) {
  const auto group = optimizers.empty() ? nullptr : strategy.optimizer_group(*optimizers.front());
  const auto local = strategy.run([&](ReplicaContext& replica) {
    const auto index = static_cast<size_t>(replica.local_replica_id());
    if (!group) return digests_of(*modules[index], nullptr, nullptr);
    return digests_of(*modules[index], optimizers[index], group->sharded(replica.local_replica_id()));
  });
  std::vector<torch::Tensor> own;
  for (const auto& of_replica : local.local_values()) own.push_back(of_replica.digests);
  const auto& first = local.local_values().front();
  StateDigests all{
      first.names, gather_of_replicas(strategy, own), first.axes, {}, device_types_of_ranks(strategy)};
  for (const auto& axis : all.axes) {
    if (!axis.empty() && !all.parts.contains(axis))
      all.parts.emplace(axis, parts_of_ranks(strategy.mesh(), axis));
  }
  return all;
}

void check_equal(const StateDigests& states, int64_t step) {
  const auto& all = states.of_replicas;
  for (size_t replica = 1; replica < all.size(); ++replica) {
    if (all[replica].size(0) == all[0].size(0)) continue;
    throw InconsistentReplicas(
        c10::str("[DivergenceCheck] expected states of as many tensors, but after step ", step, " replica ",
                 replica, " has ", all[replica].size(0), " and replica 0 has ", all[0].size(0)));
  }
  for (size_t i = 0; i < states.names.size(); ++i) {
    std::map<std::pair<c10::DeviceType, int>, std::vector<size_t>> groups;  // of ranks with the same bits
    const auto* parts = states.axes[i].empty() ? nullptr : &states.parts.at(states.axes[i]);
    for (size_t rank = 0; rank < all.size(); ++rank)
      groups[{states.device_types[rank], parts != nullptr ? parts->at(rank) : 0}].push_back(rank);
    for (const auto& [key, ranks] : groups) {
      std::vector<int64_t> digests;
      for (const size_t rank : ranks) digests.push_back(all[rank].const_data_ptr<int64_t>()[2 * i]);
      if (std::all_of(digests.begin(), digests.end(), [&](int64_t digest) { return digest == digests[0]; }))
        continue;
      const size_t odd = odd_one_out(digests);
      throw InconsistentReplicas(c10::str(
          "[DivergenceCheck] expected the same bits on all replicas, but after step ", step, " replica ",
          ranks[odd], " has other ones in ", states.names[i], " than replica ", ranks[odd == 0 ? 1 : 0]));
    }
  }
}

void check_finite(const StateDigests& states, int64_t epoch, int64_t step) {
  for (size_t replica = 0; replica < states.of_replicas.size(); ++replica) {
    const auto* digests = states.of_replicas[replica].const_data_ptr<int64_t>();
    // check_equal() reports replicas whose states have other tensors.
    const auto count =
        std::min(states.names.size(), static_cast<size_t>(states.of_replicas[replica].size(0)));
    for (size_t i = 0; i < count; ++i) {
      if (digests[2 * i + 1] == 0) continue;
      throw NotFinite({.epoch = epoch,
                       .step = step,
                       .replica = static_cast<int64_t>(replica),
                       .tensor = states.names[i]});
    }
  }
}

}  // namespace lockstep
