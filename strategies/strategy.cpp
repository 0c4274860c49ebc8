#include "lockstep/strategies/strategy.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "lockstep/runtime/replica_random.h"
#include "lockstep/strategies/cross_device_choice.h"
#include "lockstep/strategies/device_error.h"
#include "lockstep/strategies/strategy_core.h"

namespace lockstep {

Strategy::Strategy(StrategyConfig config) : core_(std::make_unique<Core>()) {
  if (config.devices.empty())
    throw InvalidArgument(c10::str("[", config.name, "] expected at least one device, but got none"));
  if (config.intra_op_threads < 0) {
    throw InvalidArgument(c10::str("[", config.name, "] expected 0 or more threads a replica, but got ",
                                   config.intra_op_threads));
  }
  // Before anything that is ours starts a thread: NCCL's settings are in the environment.
  const auto candidates = config.cross_device_ops
                              ? std::vector<CrossDeviceCandidate>{{config.cross_device_ops, "as asked for"}}
                              : candidates_for(config.devices);
  auto opened = open_first(candidates, config.devices, config.timeout);
  config.cross_device_ops = std::move(opened.ops);
  core_->ops_reason = std::move(opened.reason);
  core_->collectives = std::move(opened.channel);
  const int count = static_cast<int>(config.devices.size());
  num_replicas_ = count;
  const uint64_t seed =
      config.seed.value_or(at::globalContext().defaultGenerator(torch::kCPU).current_seed());
  for (int replica = 0; replica < count; ++replica) {
    const LogicalDevice& device = config.devices[static_cast<size_t>(replica)];
    // The first that is asked of the device.
    on_replica(config.name.c_str(), replica, device, [&] {
      core_->states.push_back(
          {replica, replica, count, device, make_replica_generator(device, seed, replica), 0, nullptr});
      core_->streams.push_back(make_replica_stream(device));
    });
    core_->bindings.push_back(std::make_shared<ReplicaCollectives>(config.name, replica, count));
  }
  // More threads than cores makes LibTorch's operators slower, sometimes by ten times.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = config.intra_op_threads > 0 ? config.intra_op_threads : std::max(1, cores / count);
  core_->devices = std::make_shared<const Devices>(config.devices);
  core_->config = std::move(config);
  core_->threads = std::make_unique<ReplicaThreads>(count, threads, core_->streams);
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
  return c10::str(name(), " with ", num_replicas_, " ", num_replicas_ == 1 ? "replica" : "replicas", " on ",
                  c10::Join(" ", names), ", ", cross_device_ops().name(), " (", core_->ops_reason, ")");
}

InputPlacement Strategy::placement() const {
  return {shared_devices(), num_replicas_, first_replica_};
}

}  // namespace lockstep
