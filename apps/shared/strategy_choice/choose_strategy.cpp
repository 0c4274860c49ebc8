#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"

#include <c10/util/StringUtil.h>

#include <charconv>
#include <chrono>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/device_plugin.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/runtime/cluster/slurm_cluster_resolver.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/strategies/mirrored/tpu_strategy.h"

namespace lockstep::apps {
namespace {

/// Returns a message of the library without the "[name] " of its origin.
std::string without_origin(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with('[') && end != std::string::npos ? message.substr(end + 2) : message;
}

std::vector<std::string> devices_for_replicas(const StrategyChoice& choice) {
  const bool has_one_replica = choice.strategy == "default" || choice.strategy == "one_device";
  if (has_one_replica && choice.replicas > 1) {
    throw UsageError(c10::str("--replicas ", choice.replicas, ": expected 1 with --strategy ",
                              choice.strategy, ", which has one replica; mirrored takes more"));
  }
  if (choice.strategy == "default") return {};
  const std::vector<LogicalDevice> there = accelerators();
  if (there.empty()) return cpu_devices(choice.replicas);
  if (choice.replicas > static_cast<int>(there.size())) {
    throw UsageError(c10::str("--replicas ", choice.replicas, ": expected at most one a ",
                              device_type_noun(there[0].type), ", but there are ", there.size(),
                              "; --replicas-per-device puts several on each, --devices ",
                              c10::Join(",", cpu_devices(choice.replicas)), " takes logical CPUs"));
  }
  std::vector<std::string> devices;
  for (int index = 0; index < choice.replicas; ++index)
    devices.push_back(there[static_cast<size_t>(index)].str());
  return devices;
}

std::vector<std::string> requested_devices(const StrategyChoice& choice) {
  if (!choice.devices.empty()) {
    try {
      parse_devices(choice.devices);
    } catch (const InvalidArgument& error) {
      throw UsageError(
          c10::str("--devices ", c10::Join(",", choice.devices), ": ", without_origin(error.what())));
    }
    return choice.devices;
  }
  if (choice.replicas > 0) return devices_for_replicas(choice);
  if (choice.strategy == "one_device") return {accelerator() ? accelerators()[0].str() : "cpu:0"};
  return {};
}

ReplicaWeights parse_replica_weights(const std::string& text) {
  if (text == "measured") return ReplicaWeights::measured();
  std::vector<double> values;
  std::istringstream numbers(text + (text.ends_with(',') ? "," : ""));  // getline() drops an empty last piece
  for (std::string number; std::getline(numbers, number, ',');) {
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || error != std::errc() || end != number.data() + number.size()) {
      throw UsageError(c10::str("--replica-weights ", text,
                                ": expected measured, or positive numbers joined by commas, but got '",
                                number, "'"));
    }
    values.push_back(value);
  }
  return ReplicaWeights(std::move(values));
}

/// Refuses ps tasks for a program that trains without parameter servers.
void refuse_servers(const StrategyRequest& request, const std::string& program) {
  const auto* cluster = request.cluster_resolver.get();
  if (cluster != nullptr && cluster->cluster_spec().has_job("ps"))
    throw UsageError(c10::str(cluster->source(), ": expected a cluster without ps tasks, as ", program,
                              " trains without parameter servers; train_ctr trains by them"));
}

/// Refuses a job of several Slurm tasks in which this process cannot find the others.
void refuse_part_of_slurm() {
  const auto missing = SlurmClusterResolver::missing_variables(process_environment());
  if (missing.empty()) return;
  throw UsageError(
      c10::str("--strategy multi_worker: this is a Slurm job with several tasks, but ",
               c10::Join(", ", missing), missing.size() == 1 ? " is" : " are",
               " not set; start the program by srun, and pass srun's variables on to containers"));
}

}  // namespace

std::shared_ptr<const ClusterResolver> requested_cluster(const StrategyChoice& choice) {
  const bool takes_hosts =
      choice.strategy == "auto" || choice.strategy == "multi_worker" || choice.strategy == "tpu";
  if (!takes_hosts && !choice.worker_hosts.empty())
    throw UsageError(c10::str("--worker-hosts ", c10::Join(",", choice.worker_hosts),
                              ": expected it with --strategy multi_worker or tpu only, but got --strategy ",
                              choice.strategy));
  if (!takes_hosts && choice.strategy != "parameter_server") return nullptr;
  ClusterFlags flags{.worker_hosts = choice.worker_hosts};
  if (choice.task_index >= 0) flags.task_index = choice.task_index;
  try {
    return resolve_cluster(process_environment(), flags);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

MadeStrategy choose_strategy(const StrategyChoice& choice, const StrategyNeeds& needs) {
  if (choice.sharding == 3 && !needs.shards_parameters) {
    throw UsageError("--sharding 3: expected at most 2 in " + needs.program +
                     ", whose models are not built of units; those of train_gpt and train_images are");
  }
  load_device_plugin(process_environment());
  StrategyRequest request;
  request.devices = requested_devices(choice);
  request.options.intra_op_threads = choice.threads;
  request.options.seed = needs.seed;
  request.options.replicas_per_device = choice.replicas_per_device;
  request.options.timeout = std::chrono::seconds(choice.communication_timeout_seconds);
  if (needs.parameters) request.parameters = *needs.parameters;
  request.cluster_resolver = requested_cluster(choice);
  if (!needs.parameters) refuse_servers(request, needs.program);
  if (choice.strategy == "multi_worker" && request.cluster_resolver == nullptr) {
    refuse_part_of_slurm();
    log_line(
        needs.program,
        "warning: --strategy multi_worker: no cluster was found, so this process trains alone; a cluster is "
        "given by --worker-hosts, by TF_CONFIG, or by the variables that torchrun, Kubeflow (RANK, "
        "WORLD_SIZE), srun (SLURM_STEP_ID, SLURM_PROCID) or mpirun (OMPI_COMM_WORLD_RANK) sets; "
        "lockstep_launch_local starts workers on this machine");
  }
  request.options.communication.implementation = parse_communication(choice.communication);
  request.options.communication.exchange_algorithm = choice.exchange_algorithm;
  request.options.communication.encrypt = choice.encrypt == "on";
  request.options.communication.gradient_compression = make_gradient_compression(choice.gradient_compression);
  std::string flags = "--strategy " + choice.strategy;
  if (!choice.devices.empty()) flags += " --devices " + c10::Join(",", choice.devices);
  if (choice.replicas_per_device != 1)
    flags += c10::str(" --replicas-per-device ", choice.replicas_per_device);
  if (choice.cross_device_ops != "auto") {
    request.options.cross_device_ops = make_cross_device_ops(choice.cross_device_ops);
    flags += " --cross-device-ops " + choice.cross_device_ops;
  }
  if (!choice.replica_weights.empty()) {
    request.options.replica_weights = parse_replica_weights(choice.replica_weights);
    flags += " --replica-weights " + choice.replica_weights;
  }
  if (!choice.mesh.empty()) flags += " --mesh " + choice.mesh;
  if (choice.sharding > 0) flags += c10::str(" --sharding ", choice.sharding);
  request.options.sharding.stage = choice.sharding;
  if (choice.host_optimizer_state) flags += " --host-optimizer-state";
  request.options.sharding.host_optimizer_state = choice.host_optimizer_state;
  try {
    if (!choice.mesh.empty()) request.options.mesh = parse_mesh(choice.mesh);
    for (const auto& axis : request.options.mesh.axes()) {
      // Each rank would compute whole sequences, and count them once more.
      if (axis.role != AxisRole::kContext || axis.size == 1 || needs.cuts_sequences) continue;
      throw UsageError(c10::str("--mesh ", choice.mesh, ": expected axes that the models of ", needs.program,
                                " take, but got ", axis.name, ", along which sequences are cut"));
    }
    auto made = make_strategy(choice.strategy, request);
    const auto* cluster = made.strategy->cluster_resolver();
    if (cluster != nullptr && cluster->task_type() == "evaluator") {
      throw UsageError(c10::str(cluster->source(), ": this task is evaluator ", cluster->task_id(),
                                ", which evaluates only, and ", needs.program,
                                " trains: start a chief or a worker"));
    }
    return made;
  } catch (const InvalidArgument& error) {
    throw UsageError(flags + ": " + without_origin(error.what()));
  }
}

std::string strategy_of_workers(const Strategy& strategy) {
  return dynamic_cast<const TPUStrategy*>(&strategy) != nullptr ? "tpu" : "multi_worker";
}

void decide_strategy(const Strategy& strategy, const std::string& name, StrategyChoice& choice,
                     std::map<std::string, Origin>& origins) {
  const ClusterResolver* cluster = strategy.cluster_resolver();
  if (choice.strategy != "auto" || cluster == nullptr) return;
  choice.strategy = name;
  if (choice.worker_hosts.empty())
    origins["strategy"] = {.kind = OriginKind::kEnvironment, .name = cluster->source()};
}

}  // namespace lockstep::apps
