// Strategy::scope() and mirror(), which make one object per replica.

#include <c10/util/StringUtil.h>
#include <torch/nn/modules/embedding.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/devices/internal/random_state.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/core/internal/optimizer_description.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

template <typename Work>
void on_device_of(const ReplicaState& state, const std::string& strategy, const Work& work) {
  with_device_errors(strategy.c_str(), state.rank, state.device, work);
}

std::string describe_tensor(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes(),
                  tensor.requires_grad() ? ", trained" : "");
}

void to_channels_last(const torch::nn::Module& module) {
  const auto convert = [](torch::Tensor tensor) {
    if (tensor.defined() && tensor.dim() == 4)
      tensor.set_data(tensor.contiguous(torch::MemoryFormat::ChannelsLast));
  };
  for (const auto& parameter : module.parameters()) convert(parameter);
  for (const auto& buffer : module.buffers()) convert(buffer);
}

/// Whether a layer says beforehand that the gradients of its table will be sparse.
bool has_sparse_gradients(const torch::nn::Module& layer) {
  if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&layer))
    return embedding->options.sparse();
  if (const auto* bags = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&layer))
    return bags->options.sparse();
  return dynamic_cast<const ServedTable*>(&layer) != nullptr;
}

}  // namespace

// Nothing here needs more than one thread, and a pool for the caller would slow down the replicas' pools:
// OpenMP's threads spin while they wait for work only if the process has no more of them than cores.
void Strategy::run_factories(const std::function<void(ReplicaContext&)>& make) {
  core_->check_caller("scope");
  const IntraOpThreadsGuard no_pool(1);
  std::vector<torch::Device> torch_devices;
  for (const auto& device : devices()) torch_devices.push_back(device.torch_device());
  if (core_->config.workers) {
    const auto state = random_state_of(at::globalContext().defaultGenerator(torch::kCPU));
    core_->factory_random_state = fingerprint_of(
        std::string(static_cast<const char*>(state.const_data_ptr()), static_cast<size_t>(state.numel())));
  }
  const RandomState before(torch_devices);
  std::optional<RandomState> after;
  core_->in_factory = true;
  try {
    for (auto& state : core_->states) {
      if (after) before.restore();
      const ReplicaStreamGuard on_stream(core_->streams[static_cast<size_t>(state.local_id)]);
      ReplicaContext replica(state, *this, nullptr, {});
      on_device_of(state, name(), [&] { make(replica); });
      if (!after) after.emplace(torch_devices);
    }
  } catch (...) {
    core_->in_factory = false;
    if (after) after->restore();
    throw;
  }
  core_->in_factory = false;
  after->restore();
}

void Strategy::refuse_channels_last() const {
  throw InvalidArgument("[" + name() + "] scope: channels_last is for modules, but the factory made none");
}

void Strategy::adopt_modules(const std::vector<ModulePointer>& modules, const ScopeOptions& options) {
  const IntraOpThreadsGuard no_pool(1);
  for (size_t replica = 0; replica < modules.size(); ++replica) {
    if (!modules[replica])
      throw InvalidArgument("[" + name() + "] expected a module, but the factory made an empty one");
    const ReplicaState& state = core_->states[replica];
    on_device_of(state, name(), [&] {
      modules[replica]->to(state.device.torch_device());
      if (options.channels_last) to_channels_last(*modules[replica]);
    });
  }
  check_same_structure(modules, name(), first_replica_);
  on_modules(modules);
  if (const auto& workers = core_->config.workers) {
    std::vector<torch::Tensor> state;
    std::vector<std::string> lines;
    bool has_shards = false;
    for (const auto& [tensor_name, tensor] : named_state(*modules[0])) {
      const auto* shard = sharded_parameter_of(tensor);
      has_shards = has_shards || shard != nullptr;
      lines.push_back(c10::str("'", tensor_name, "' ",
                               shard != nullptr ? c10::str("a shard of ", at::IntArrayRef(shard->sizes))
                                                : describe_tensor(tensor)));
      if (tensor.defined() && shard == nullptr) state.push_back(tensor);
    }
    workers->check_same("model", lines);
    // No worker has the whole of a unit to send to the others.
    if (has_shards) {
      workers->check_same("sharded parameters", {c10::str("random state ", core_->factory_random_state,
                                                          " (torch::manual_seed() sets it)")});
    }
    workers->broadcast_(state);
  }
  copy_module_state(modules, 0);
  keep_sums_once(modules, first_replica_);
  core_->directory->add(modules);
  for (size_t replica = 0; replica < modules.size(); ++replica) {
    for (const auto& module : modules[replica]->modules()) {
      if (auto* bound = dynamic_cast<ReplicaBound*>(module.get())) bound->bind(core_->bindings[replica]);
    }
  }
}

ReplicaPeers Strategy::replica_peers() const {
  ReplicaPeers peers{.first_replica = first_replica_, .gather_tensors = {}};
  if (core_->mesh.cuts_models()) {
    peers.counts = [mesh = core_->mesh, first = first_replica_](size_t local) {
      return mesh.is_first_of_replica(first + static_cast<int>(local));
    };
  }
  if (const auto workers = core_->config.workers)
    peers.gather_tensors = [workers](const auto& own) { return workers->gather_tensors(own); };
  return peers;
}

void Strategy::adopt_tensors(std::vector<torch::Tensor>& tensors) const {
  if (const auto& workers = core_->config.workers) {
    workers->check_same("tensor", {describe_tensor(tensors[0])});
    tensors[0] = tensors[0].detach().clone().set_requires_grad(tensors[0].requires_grad());
    workers->broadcast_({tensors[0]});
  }
  for (size_t replica = 0; replica < tensors.size(); ++replica) {
    const ReplicaState& state = core_->states[replica];
    const bool requires_grad = tensors[replica].requires_grad();
    on_device_of(state, name(), [&] {
      const torch::Tensor there = tensors[0].detach().to(state.device.torch_device());
      tensors[replica] = (replica == 0 ? there : there.clone()).set_requires_grad(requires_grad);
    });
  }
}

std::shared_ptr<void> Strategy::adopt_optimizers(std::vector<torch::optim::Optimizer*> optimizers) {
  if (const auto& workers = core_->config.workers)
    workers->check_same("optimizer", describe_optimizer(*optimizers.front(), *core_->directory));
  auto channel = core_->open_gradients();
  auto sharding = num_ranks() > 1 ? core_->open_sharding(*optimizers.front()) : GradientSharding{};
  const auto called = core_->called_channels();
  auto group = std::make_shared<OptimizerGroup>(
      optimizers, std::move(channel), *core_->threads, core_->directory,
      OptimizerGroup::Options{core_->num_optimizers++,
                              first_replica_,
                              {called.begin(), called.end()},
                              core_->config.buckets,
                              [core = core_.get()](int replica) {
                                return core->states[static_cast<size_t>(replica)].accumulations > 0;
                              },
                              [this](int replica, const std::exception_ptr& error) {
                                rethrow_from_device(error, {name(), first_replica_ + replica,
                                                            devices()[static_cast<size_t>(replica)]});
                              },
                              std::move(sharding),
                              core_->sharding.host_optimizer_state,
                              has_sparse_gradients});
  on_optimizers(optimizers);
  core_->optimizers.push_back(group);
  core_->watch_losses();
  return group;
}

void Strategy::on_modules(const std::vector<ModulePointer>& modules) {
  for (const auto& replica : modules) {
    for (const auto& module : replica->modules()) {
      if (auto* table = dynamic_cast<ServedTable*>(module.get())) table->make_table();
    }
  }
}

void Strategy::on_optimizers(const std::vector<torch::optim::Optimizer*>&) {}

std::string Strategy::parameter_name(const torch::Tensor& parameter) const {
  if (const auto found = core_->directory->find(parameter)) return found->name;
  throw InvalidArgument(c10::str("[", name(), "] expected a parameter of a module made in scope, but got ",
                                 describe_tensor(parameter)));
}

std::vector<ModulePointer> Strategy::clone_to_devices(const ModulePointer& module) const {
  core_->check_caller("mirror");
  if (!module) throw InvalidArgument("[" + name() + "] mirror: expected a module, but got an empty one");
  std::vector<ModulePointer> copies;
  for (const auto& state : core_->states) {
    on_device_of(state, name(), [&] { copies.push_back(clone_module(module, state.device.torch_device())); });
  }
  return copies;
}

void Strategy::compare_probes(const std::vector<torch::Tensor>& outputs) const {
  for (size_t i = 1; i < outputs.size(); ++i) {
    if (torch::equal(outputs[i].to(outputs[0].device()), outputs[0])) continue;
    throw InvalidArgument("[" + name() + "] mirror: replica " +
                          std::to_string(first_replica_ + static_cast<int>(i) - 1) +
                          "'s copy gives another output for the probe than the original: the module keeps "
                          "state that clone() cannot see; make it in scope()");
  }
}

void Strategy::refuse_probe() const {
  throw InvalidArgument("[" + name() +
                        "] mirror: a probe needs a module whose forward takes and gives one tensor");
}

}  // namespace lockstep
