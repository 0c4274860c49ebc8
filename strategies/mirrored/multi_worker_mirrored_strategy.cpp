#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

#include <c10/util/StringUtil.h>
#include <c10/util/env.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/cluster/internal/job_secret.h"
#include "lockstep/runtime/cluster/internal/master_address.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/workers/agent_store.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/internal/exchange_algorithm.h"
#include "lockstep/strategies/communication/internal/worker_ops_choice.h"

namespace lockstep {
namespace {

constexpr const char* kName = "MultiWorkerMirroredStrategy";

using Resolver = std::shared_ptr<const ClusterResolver>;

/// Returns whether a launcher may have given this worker the one device that it sees, which has index 0 for
/// all workers then: CUDA's variable hides the others. Plugins have variables of their own, and some show a
/// process one device only.
bool shows_own_device(const LogicalDevice& device) {
  if (device.is_cuda()) return c10::utils::get_env("CUDA_VISIBLE_DEVICES").has_value();
  return device.type == c10::DeviceType::PrivateUse1;
}

std::string exact_numbers(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += exact_number(value) + " ";
  return text;
}

std::string cluster_text(const ClusterSpec& spec) {
  std::string text;
  for (const auto& [job, tasks] : spec.jobs()) {
    for (const auto& [index, address] : tasks) text += c10::str(job, " ", index, " ", address.str(), " ");
  }
  return text;
}

/// 0 stands for what the strategy chooses.
std::string size_text(int64_t bytes) {
  return bytes == 0 ? "as chosen" : c10::str("of ", bytes, " bytes");
}

FirstTask first_task(const ClusterResolver& resolver, const ClusterOptions& cluster) {
  FirstTask first{.generation = static_cast<uint64_t>(resolver.restart_count())};
  if (!resolver.is_master_served_by_launcher()) return first;
  first.find_address = [&resolver, &cluster] {
    const HostPort agent = resolver.master().value();
    try {
      const auto store = ask_agent({.host = agent.host,
                                    .port = agent.port,
                                    .timeout = cluster.join_timeout,
                                    .restart_count = resolver.restart_count()});
      return HostPort{store.host, store.port};
    } catch (const std::exception&) {
      throw ClusterError(c10::str("[join] worker ", resolver.rank(), " found no coordinator at ", agent.str(),
                                  ": ", error_line(std::current_exception())));
    }
  };
  return first;
}

std::shared_ptr<WorkerGroup> join_workers(const ClusterResolver& resolver, const ClusterOptions& cluster,
                                          const StrategyOptions& options, const StrategyConfig& config) {
  const auto secret = job_secret(resolver, cluster, first_task(resolver, cluster));
  JoinOptions join{.rank = resolver.rank(),
                   .size = resolver.world_size(),
                   .is_master_served = resolver.is_master_served_by_launcher(),
                   .address = cluster.address,
                   .token = secret.token,
                   .grant = secret.grant,
                   .restart_count = resolver.restart_count(),
                   .num_replicas = static_cast<int>(config.devices.size()),
                   .join_timeout = cluster.join_timeout,
                   .timeout = options.timeout,
                   .uses_shared_memory = cluster.uses_shared_memory,
                   .encrypts = options.communication.encrypt};
  if (options.communication.implementation == CommunicationImplementation::kRing)
    join.transport = WorkerTransport::kGloo;
  join.all_reduce_algorithm = parse_exchange_algorithm(options.communication.exchange_algorithm);
  const auto& compression = options.communication.gradient_compression;
  join.facts = {{"cluster", cluster_text(resolver.cluster_spec())},
                {"Lockstep version", LOCKSTEP_VERSION},
                {"mesh", options.mesh.str()},
                {"sharding", c10::str("stage ", options.sharding.stage, " ", options.sharding.axis,
                                      options.sharding.host_optimizer_state ? " on the host" : "")},
                {"replica weights", options.replica_weights.are_measured()
                                        ? std::string("measured")
                                        : exact_numbers(options.replica_weights.values())},
                {"communication",
                 c10::str(config.cross_device_ops ? config.cross_device_ops->name()
                                                  : communication_name(options.communication.implementation),
                          ", first bucket ", size_text(options.buckets.first_bucket_bytes), ", buckets ",
                          size_text(options.buckets.bucket_bytes), ", packs ",
                          size_text(options.communication.bytes_per_pack), ", exchange algorithm ",
                          options.communication.exchange_algorithm, ", encryption ",
                          options.communication.encrypt ? "on" : "off", ", gradient compression ",
                          compression ? compression->name() : "none")}};
  auto master = open_master(resolver, cluster);
  join.master_host = master.address.host;
  join.master_port = master.address.port;
  join.listening_socket = master.socket;
  return WorkerGroup::join(join);
}

/// Returns a mesh with the same axes for the replicas of one process, which all lie along the first one.
Mesh alone(const Mesh& mesh, int num_replicas) {
  auto axes = mesh.axes();
  for (auto& axis : axes) axis.size = 1;
  if (!axes.empty()) axes.front().size = num_replicas;
  return Mesh(std::move(axes));
}

StrategyConfig configure(const char* name, const ClusterResolver& resolver, const Devices& devices,
                         StrategyOptions options, const ClusterOptions& cluster) {
  options.communication.check();
  if (options.communication.timeout) options.timeout = *options.communication.timeout;
  if (options.replicas_per_device < 1) {
    throw InvalidArgument(
        c10::str("[", name, "] expected 1 or more replicas a device, but got ", options.replicas_per_device));
  }
  StrategyConfig config;
  config.name = name;
  for (const auto& device : devices)
    config.devices.insert(config.devices.end(), static_cast<size_t>(options.replicas_per_device), device);
  config.cross_device_ops = std::move(options.cross_device_ops);
  config.intra_op_threads = options.intra_op_threads;
  config.seed = options.seed;
  config.mesh = options.mesh;
  config.sharding = options.sharding;
  config.replica_weights = options.replica_weights;
  config.buckets = options.communication.packed(options.buckets);
  config.gradient_compression = options.communication.gradient_compression;
  config.timeout = options.timeout;
  config.num_processes_here = resolver.local_world_size();
  if (resolver.task_type() == "evaluator") {
    config.mesh = alone(config.mesh, static_cast<int>(config.devices.size()));
    config.sharding = {};
    config.replica_weights = {};
    return config;
  }
  resolver.rank();  // throws for a parameter server
  if (resolver.world_size() == 1) return config;
  check_over_workers(name, config.devices, options.communication, config.cross_device_ops);
  config.workers = join_workers(resolver, cluster, options, config);
  auto choice = choose_over_workers(config.workers, config.devices, options.communication,
                                    std::move(config.cross_device_ops));
  config.cross_device_ops = std::move(choice.ops);
  config.cross_device_ops_reason = std::move(choice.reason);
  if (choice.bucket_bytes) {
    config.buckets = config.buckets.or_else(
        {.first_bucket_bytes = kDefaultBuckets.first_bucket_bytes, .bucket_bytes = *choice.bucket_bytes});
    config.cross_device_ops_reason += c10::str("; buckets of ", config.buckets.bucket_bytes / 1024, " KiB");
  }
  return config;
}

}  // namespace

torch::Tensor MultiWorkerMirroredStrategy::apply_gradients(ReplicaContext& replica,
                                                           torch::optim::Optimizer& optimizer,
                                                           const ApplyOptions& options) {
  if (!is_evaluator()) return Strategy::apply_gradients(replica, optimizer, options);
  throw InvalidArgument(c10::str("[", this->name(),
                                 "] expected a chief or a worker to train, but this is evaluator ",
                                 resolver_->task_id(), ", which evaluates only"));
}

Devices MultiWorkerMirroredStrategy::devices_of_worker(const char* name, const ClusterResolver& resolver,
                                                       const std::vector<std::string>& names,
                                                       const Devices& seen) {
  if (!names.empty()) return parse_devices(names);
  if (seen.empty()) return logical_cpus(1);
  if (resolver.local_world_size() == 1) return seen;
  if (seen.size() == 1 && shows_own_device(seen[0])) return seen;
  if (resolver.local_rank() < static_cast<int>(seen.size()))
    return {seen[static_cast<size_t>(resolver.local_rank())]};
  throw InvalidArgument(c10::str("[", name, "] expected a ", device_type_noun(seen[0].type),
                                 " for each of the ", resolver.local_world_size(),
                                 " workers on this machine, but it has ", seen.size(),
                                 ": name their devices"));
}

Resolver MultiWorkerMirroredStrategy::resolved(Resolver given) {
  if (given) return given;
  if (auto found = resolve_cluster(process_environment())) return found;
  return std::make_shared<FixedClusterResolver>(ClusterMembership{.source = "no cluster"});
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Resolver resolver, std::vector<std::string> devices,
                                                         StrategyOptions options, ClusterOptions cluster)
    : MultiWorkerMirroredStrategy(kName, resolved(std::move(resolver)), devices, options, cluster) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const char* name, Resolver resolver,
                                                         const std::vector<std::string>& devices,
                                                         const StrategyOptions& options,
                                                         const ClusterOptions& cluster)
    : Strategy(configure(name, *resolver, devices_of_worker(name, *resolver, devices, accelerators()),
                         options, cluster)),
      resolver_(std::move(resolver)) {}

}  // namespace lockstep
