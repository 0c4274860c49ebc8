#include "lockstep/strategies/strategy.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/gradient_clipping.h"
#include "lockstep/runtime/intra_op_threads.h"
#include "lockstep/runtime/optimizer_group.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/replica_random.h"
#include "lockstep/strategies/run_failure.h"

namespace lockstep {

struct Strategy::Core {
  StrategyConfig config;
  std::shared_ptr<const Devices> devices;
  std::string ops_reason;
  std::vector<ReplicaState> states;
  std::shared_ptr<ParameterDirectory> directory = std::make_shared<ParameterDirectory>();
  std::unique_ptr<CollectiveGroup> collectives;
  std::vector<std::weak_ptr<OptimizerGroup>> optimizers;
  bool in_factory = false;
  // Last, so that the threads end before anything that they use.
  std::unique_ptr<ReplicaThreads> threads;

  std::vector<std::shared_ptr<OptimizerGroup>> live_optimizers() {
    std::vector<std::shared_ptr<OptimizerGroup>> live;
    std::erase_if(optimizers, [](const auto& group) { return group.expired(); });
    for (const auto& group : optimizers) live.push_back(group.lock());
    return live;
  }

  void check_caller(const char* call) const {
    if (threads->contains_current_thread()) {
      throw InvalidArgument(fmt::format("[{}] {} was called inside a replica function: replicas run already",
                                        config.name, call));
    }
    if (in_factory) {
      throw InvalidArgument(fmt::format("[{}] {} was called inside a scope's factory", config.name, call));
    }
  }
};

Strategy::Strategy(StrategyConfig config) : core_(std::make_unique<Core>()) {
  if (config.devices.empty())
    throw InvalidArgument(fmt::format("[{}] expected at least one device, but got none", config.name));
  if (config.intra_op_threads < 0) {
    throw InvalidArgument(fmt::format("[{}] expected 0 or more threads a replica, but got {}", config.name,
                                      config.intra_op_threads));
  }
  if (config.cross_device_ops) {
    config.cross_device_ops->check_devices(config.devices);
    core_->ops_reason = "as asked for";
  } else {
    auto chosen = choose_cross_device_ops(config.devices);
    config.cross_device_ops = std::move(chosen.ops);
    core_->ops_reason = std::move(chosen.reason);
  }
  const int count = static_cast<int>(config.devices.size());
  num_replicas_ = count;
  const uint64_t seed =
      config.seed.value_or(at::globalContext().defaultGenerator(torch::kCPU).current_seed());
  for (int replica = 0; replica < count; ++replica) {
    const LogicalDevice& device = config.devices[static_cast<size_t>(replica)];
    core_->states.push_back(
        {replica, replica, count, device, make_replica_generator(device, seed, replica), 0});
  }
  // More threads than cores makes LibTorch's operators slower, sometimes by ten times.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = config.intra_op_threads > 0 ? config.intra_op_threads : std::max(1, cores / count);
  core_->collectives = config.cross_device_ops->make_channel(config.devices, config.timeout);
  core_->devices = std::make_shared<const Devices>(config.devices);
  core_->config = std::move(config);
  core_->threads = std::make_unique<ReplicaThreads>(count, threads);
}

Strategy::~Strategy() = default;

const std::string& Strategy::name() const {
  return core_->config.name;
}
int Strategy::num_local_replicas() const {
  return static_cast<int>(core_->states.size());
}
const Devices& Strategy::devices() const {
  return core_->config.devices;
}
const CrossDeviceOps& Strategy::cross_device_ops() const {
  return *core_->config.cross_device_ops;
}
std::shared_ptr<const Devices> Strategy::shared_devices() const {
  return core_->devices;
}

std::string Strategy::describe() const {
  std::vector<std::string> names;
  for (const auto& device : devices()) names.push_back(device.str());
  return fmt::format("{} with {} {} on {}, {} ({})", name(), num_replicas_,
                     num_replicas_ == 1 ? "replica" : "replicas", fmt::join(names, " "),
                     cross_device_ops().name(), core_->ops_reason);
}

// Nothing here is worth more than one thread, and a pool of the caller's would slow the replicas' own:
// OpenMP's threads wait for work by spinning only while the process has no more of them than cores.
void Strategy::run_factories(const std::function<void(ReplicaContext&)>& make) {
  core_->check_caller("scope");
  const IntraOpThreadsGuard no_pool(1);
  std::vector<torch::Device> torch_devices;
  for (const auto& device : devices()) torch_devices.push_back(device.torch_device());
  const RandomState before(torch_devices);
  std::optional<RandomState> after;
  core_->in_factory = true;
  try {
    for (auto& state : core_->states) {
      if (after) before.restore();
      const c10::OptionalDeviceGuard on_device(state.device.torch_device());
      ReplicaContext replica(state, *this, nullptr, {});
      make(replica);
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

void Strategy::adopt_modules(const std::vector<ModulePointer>& modules) {
  const IntraOpThreadsGuard no_pool(1);
  for (size_t replica = 0; replica < modules.size(); ++replica) {
    if (!modules[replica])
      throw InvalidArgument(fmt::format("[{}] expected a module, but the factory made an empty one", name()));
    modules[replica]->to(core_->states[replica].device.torch_device());
  }
  check_same_structure(modules, name());
  copy_module_state(modules, 0);
  core_->directory->add(modules);
}

void Strategy::adopt_tensors(std::vector<torch::Tensor>& tensors) const {
  for (size_t replica = 0; replica < tensors.size(); ++replica) {
    const bool requires_grad = tensors[replica].requires_grad();
    const torch::Tensor there = tensors[0].detach().to(core_->states[replica].device.torch_device());
    tensors[replica] = (replica == 0 ? there : there.clone()).set_requires_grad(requires_grad);
  }
}

std::shared_ptr<void> Strategy::adopt_optimizers(std::vector<torch::optim::Optimizer*> optimizers) {
  auto channel =
      num_replicas_ > 1 ? cross_device_ops().make_channel(devices(), core_->config.timeout) : nullptr;
  auto group = std::make_shared<OptimizerGroup>(
      std::move(optimizers), std::move(channel), *core_->threads, core_->directory,
      OptimizerGroup::Options{core_->config.buckets, [core = core_.get()](int replica) {
                                return core->states[static_cast<size_t>(replica)].accumulations > 0;
                              }});
  core_->optimizers.push_back(group);
  return group;
}

std::vector<ModulePointer> Strategy::clone_to_devices(const ModulePointer& module) const {
  core_->check_caller("mirror");
  if (!module)
    throw InvalidArgument(fmt::format("[{}] mirror: expected a module, but got an empty one", name()));
  std::vector<ModulePointer> copies;
  for (const auto& state : core_->states) copies.push_back(clone_module(module, state.device.torch_device()));
  return copies;
}

void Strategy::compare_probes(const std::vector<torch::Tensor>& outputs) const {
  for (size_t i = 1; i < outputs.size(); ++i) {
    if (torch::equal(outputs[i].to(outputs[0].device()), outputs[0])) continue;
    throw InvalidArgument(
        fmt::format("[{}] mirror: replica {}'s copy gives another output for the probe than the original: "
                    "the module keeps state "
                    "that clone() cannot see; make it in scope()",
                    name(), i - 1));
  }
}

void Strategy::refuse_probe() const {
  throw InvalidArgument(
      fmt::format("[{}] mirror: a probe needs a module whose forward takes and gives one tensor", name()));
}

void Strategy::check_num_values(size_t count) const {
  if (count == core_->states.size()) return;
  throw InvalidArgument(
      fmt::format("[{}] run: expected arguments with a value for each of the {} replicas, but got one with "
                  "{}: it belongs to another strategy",
                  name(), core_->states.size(), count));
}

void Strategy::run_replicas(const std::function<void(ReplicaContext&)>& fn,
                            const std::optional<BatchSizes>& sizes) {
  Core& core = *core_;
  core.check_caller("run");
  const auto optimizers = core.live_optimizers();
  std::vector<CollectiveGroup*> channels{core.collectives.get()};
  for (const auto& group : optimizers) {
    if (!group->is_consistent()) {
      throw InconsistentReplicas(
          fmt::format("[{}] a failed run left the replicas with {} finished steps: call "
                      "strategy.restore_consistency(model, optimizer) first",
                      name(), fmt::join(group->finished_steps(), ", ")));
    }
    if (group->channel() != nullptr) channels.push_back(group->channel());
  }
  for (auto* channel : channels) channel->enter();

  RunFailure failure;
  core.threads->run(
      [&](int local) {
        ReplicaState& state = core.states[static_cast<size_t>(local)];
        const c10::OptionalDeviceGuard on_device(state.device.torch_device());
        const ReplicaRandomGuard random(state.generator);
        for (const auto& group : optimizers) {
          if (auto* reducer = group->reducer(local)) reducer->prepare();
        }
        BatchInfo batch;
        if (sizes) batch = {sizes->global, sizes->local.at(static_cast<size_t>(local))};
        ReplicaContext replica(state, *this, &core.collectives->backend(local), batch);
        fn(replica);
        for (auto* channel : channels) channel->leave(local);
      },
      [&](int local, std::exception_ptr error) {
        failure.record(local, std::move(error));
        for (auto* channel : channels) channel->abort(failure.reason());
      });

  if (!failure.happened()) {
    try {
      for (auto* channel : channels) channel->check_complete();
    } catch (...) {
      failure.record(-1, std::current_exception());
    }
  }
  if (!failure.happened()) return;
  for (auto* channel : channels) channel->reset();
  for (auto& state : core.states) state.accumulations = 0;
  for (const auto& group : optimizers) {
    for (int local = 0; local < num_local_replicas(); ++local) {
      if (auto* reducer = group->reducer(local)) reducer->reset();
    }
  }
  failure.rethrow(name(), devices(), sizes);
}

std::shared_ptr<OptimizerGroup> Strategy::optimizer_group(const torch::optim::Optimizer& optimizer) const {
  for (const auto& weak : core_->optimizers) {
    if (auto group = weak.lock(); group && group->holds(optimizer)) return group;
  }
  throw InvalidArgument(
      fmt::format("[{}] expected an optimizer made by strategy.scope(), but got another: its gradients are "
                  "not summed over the replicas",
                  name()));
}

void Strategy::reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) {
  const auto group = optimizer_group(optimizer);
  group->check_parameters(replica.local_replica_id());
  if (auto* reducer = group->reducer(replica.local_replica_id())) reducer->finish();
}

torch::Tensor Strategy::apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                        const ApplyOptions& options) {
  const auto group = optimizer_group(optimizer);
  const int local = replica.local_replica_id();
  group->check_parameters(local);
  auto* reducer = group->reducer(local);
  if (reducer != nullptr) reducer->finish();
  torch::Tensor norm;
  if (options.clip_norm) norm = clip_gradients(parameters_of(optimizer), *options.clip_norm);
  optimizer.step();
  if (reducer != nullptr) reducer->mark_applied();
  group->count_step(local);
  return norm;
}

torch::Tensor Strategy::reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                               std::optional<int64_t> axis) {
  const auto& local = values.local_values();
  const Devices destination{devices()[0]};
  if (!axis) return cross_device_ops().reduce(op, local, destination)[0];
  std::vector<torch::Tensor> sums;
  int64_t count = 0;
  for (const auto& value : local) {
    if (*axis < -value.dim() || *axis >= value.dim()) {
      throw InvalidArgument(fmt::format(
          "[reduce] expected an axis of a tensor with {} dimensions, but got {}", value.dim(), *axis));
    }
    sums.push_back(value.sum(*axis));
    count += value.size(*axis);
  }
  torch::Tensor total = cross_device_ops().reduce(ReduceOp::kSum, sums, destination)[0];
  return op == ReduceOp::kMean ? total / count : total;
}

torch::Tensor Strategy::reduce(ReduceOp op, const torch::Tensor& value, std::optional<int64_t> axis) {
  if (op == ReduceOp::kSum && num_replicas_ > 1) {
    throw InvalidArgument(
        fmt::format("[{}] reduce: expected a value for each replica to sum, but got one tensor for all {}",
                    name(), num_replicas_));
  }
  if (!axis) return value;
  return reduce(op, PerReplica<torch::Tensor>({value}, shared_devices()), axis);
}

double Strategy::reduce_number(ReduceOp op, double local_total) const {
  return op == ReduceOp::kMean ? local_total / num_replicas_ : local_total;
}

torch::Tensor Strategy::gather(const PerReplica<torch::Tensor>& values, int64_t axis) {
  std::vector<torch::Tensor> here;
  for (const auto& value : values.local_values()) {
    if (value.dim() == 0 || axis < -value.dim() || axis >= value.dim()) {
      throw InvalidArgument(fmt::format(
          "[gather] expected an axis of a tensor with {} dimensions, but got {}", value.dim(), axis));
    }
    here.push_back(value.to(devices()[0].torch_device()));
  }
  const auto outside = [axis](const torch::Tensor& value) {
    auto sizes = value.sizes().vec();
    if (axis < value.dim()) sizes.erase(axis < 0 ? sizes.end() + axis : sizes.begin() + axis);
    return sizes;
  };
  for (size_t i = 1; i < here.size(); ++i) {
    if (here[i].dim() == here[0].dim() && outside(here[i]) == outside(here[0])) continue;
    throw InvalidArgument(fmt::format(
        "[gather] expected sizes that differ along axis {} only, but replica 0 has [{}] and replica {} has "
        "[{}]",
        axis, fmt::join(here[0].sizes(), ", "), i, fmt::join(here[i].sizes(), ", ")));
  }
  return torch::cat(here, axis);
}

void Strategy::restore_consistency(const std::vector<ModulePointer>& modules,
                                   const torch::optim::Optimizer& optimizer) {
  core_->check_caller("restore_consistency");
  const auto group = optimizer_group(optimizer);
  const auto& steps = group->finished_steps();
  const auto source = static_cast<size_t>(std::max_element(steps.begin(), steps.end()) - steps.begin());
  copy_module_state(modules, source);
  group->copy_state_from(source);
}

InputPlacement Strategy::placement() const {
  return {shared_devices(), num_replicas_, first_replica_};
}

}  // namespace lockstep
