#include "lockstep/strategies/make_strategy.h"

#include <c10/util/StringUtil.h>

#include <map>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/strategies/internal/server_strategies.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/mirrored/tpu_strategy.h"

namespace lockstep {
namespace {

std::unique_ptr<Strategy> make_default(const StrategyRequest& request) {
  if (!request.devices.empty()) {
    throw InvalidArgument(c10::str("[DefaultStrategy] expected no devices, but got ",
                                   c10::Join(",", request.devices), "; one_device and mirrored take them"));
  }
  return std::make_unique<DefaultStrategy>(request.options);
}

std::unique_ptr<Strategy> make_one_device(const StrategyRequest& request) {
  if (request.devices.size() != 1) {
    throw InvalidArgument(
        c10::str("[OneDeviceStrategy] expected exactly one device, but got ", request.devices.size()));
  }
  return std::make_unique<OneDeviceStrategy>(request.devices[0], request.options);
}

std::unique_ptr<Strategy> make_mirrored(const StrategyRequest& request) {
  return std::make_unique<MirroredStrategy>(request.devices, request.options);
}

std::unique_ptr<Strategy> make_multi_worker(const StrategyRequest& request) {
  return std::make_unique<MultiWorkerMirroredStrategy>(request.cluster_resolver, request.devices,
                                                       request.options);
}

std::unique_ptr<Strategy> make_tpu(const StrategyRequest& request) {
  return std::make_unique<TPUStrategy>(request.cluster_resolver, TPUOptions{.devices = request.devices},
                                       request.options);
}

/// Whether the process's accelerator is a plugin for TPUs.
bool has_tpus() {
  return accelerator() == c10::DeviceType::PrivateUse1 &&
         device_type_name(c10::DeviceType::PrivateUse1) == "tpu";
}

/// Whether the strategy is made from a cluster, which it looks up in the environment.
bool takes_cluster(const std::string& name) {
  return name == "auto" || name == "multi_worker" || name == "parameter_server" || name == "tpu";
}

std::map<std::string, StrategyFactory> built_in_strategies() {
  std::map<std::string, StrategyFactory> factories{{"default", make_default},
                                                   {"one_device", make_one_device},
                                                   {"mirrored", make_mirrored},
                                                   {"multi_worker", make_multi_worker},
                                                   {"tpu", make_tpu}};
  add_server_strategies(factories);
  return factories;
}

struct Table {
  Mutex mutex;
  std::map<std::string, StrategyFactory> factories LOCKSTEP_GUARDED_BY(mutex) = built_in_strategies();
};

Table& table() {
  static Table instance;
  return instance;
}

std::pair<std::string, std::string> pick(const StrategyRequest& request) {
  if (const auto* cluster = request.cluster_resolver.get()) {
    if (cluster->cluster_spec().has_job("ps"))
      return {"parameter_server", "a cluster with parameter servers is given by " + cluster->source()};
    return {has_tpus() && request.devices.empty() ? "tpu" : "multi_worker",
            "a cluster is given by " + cluster->source()};
  }
  if (request.devices.size() > 1) return {"mirrored", "several devices were asked for"};
  if (request.options.replicas_per_device > 1)
    return {"mirrored", "several replicas a device were asked for"};
  if (request.devices.size() == 1) return {"one_device", "one device was asked for"};
  if (has_tpus()) return {"tpu", c10::str("there are ", num_devices(c10::DeviceType::PrivateUse1), " TPUs")};
  if (const auto type = accelerator())
    return {"mirrored", c10::str("there are ", num_devices(*type), " ", device_type_noun(*type), "s")};
  return {"default", "there is no GPU"};
}

}  // namespace

bool register_strategy(const std::string& name, StrategyFactory factory) {
  if (name.empty() || name == "auto")
    throw InvalidArgument(c10::str("[register_strategy] expected a new name, but got '", name, "'"));
  if (!factory)
    throw InvalidArgument(c10::str("[register_strategy] expected a factory for '", name, "', but got none"));
  MutexLock lock(table().mutex);
  if (!table().factories.emplace(name, std::move(factory)).second) {
    throw InvalidArgument(c10::str("[register_strategy] expected a new name, but '", name, "' is taken"));
  }
  return true;
}

std::vector<std::string> strategy_names() {
  MutexLock lock(table().mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : table().factories) names.push_back(name);
  return names;
}

MadeStrategy make_strategy(const std::string& name, const StrategyRequest& given) {
  StrategyRequest request = given;
  if (!request.cluster_resolver && takes_cluster(name))
    request.cluster_resolver = resolve_cluster(process_environment());
  auto [picked, why] =
      name == "auto" ? pick(request) : std::pair<std::string, std::string>{name, "asked for by name"};
  if (name != "auto" && takes_cluster(name)) {
    why += request.cluster_resolver ? ", cluster of " + request.cluster_resolver->source()
                                    : ", without a cluster";
  }
  StrategyFactory factory;
  {
    MutexLock lock(table().mutex);
    if (const auto found = table().factories.find(picked); found != table().factories.end())
      factory = found->second;
  }
  if (!factory) {
    throw InvalidArgument(c10::str("[make_strategy] expected auto or one of ",
                                   c10::Join(", ", strategy_names()), ", but got '", name, "'"));
  }
  auto strategy = factory(request);
  if (!strategy)
    throw InvalidArgument(c10::str("[make_strategy] the factory of '", picked, "' returned no strategy"));
  return {std::move(strategy), c10::str(picked, ": ", why)};
}

}  // namespace lockstep
