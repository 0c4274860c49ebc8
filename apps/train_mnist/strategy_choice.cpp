#include "lockstep/apps/train_mnist/strategy_choice.h"

#include <c10/util/StringUtil.h>

#include "lockstep/apps/command_line/usage_error.h"
#include "lockstep/runtime/device.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/gradient_compression.h"
#include "lockstep/strategies/resolve_cluster.h"

namespace lockstep::apps {
namespace {

/// An error of the library's, without the part of it that it came from.
std::string without_origin(const std::string& message) {
  const size_t end = message.find("] ");
  return message.starts_with('[') && end != std::string::npos ? message.substr(end + 2) : message;
}

std::vector<std::string> devices_for_replicas(const TrainOptions& options) {
  const bool has_one_replica = options.strategy == "default" || options.strategy == "one_device";
  if (has_one_replica && options.replicas > 1) {
    throw UsageError(c10::str("--replicas ", options.replicas, ": expected 1 with --strategy ",
                              options.strategy, ", which has one replica; mirrored takes more"));
  }
  if (options.strategy == "default") return {};
  const int gpus = num_gpus();
  if (gpus == 0) return cpu_devices(options.replicas);
  if (options.replicas > gpus) {
    throw UsageError(c10::str("--replicas ", options.replicas, ": expected at most one a GPU, but there are ",
                              gpus, "; --replicas-per-device puts several on each, --devices ",
                              c10::Join(",", cpu_devices(options.replicas)), " takes logical CPUs"));
  }
  std::vector<std::string> devices;
  for (int index = 0; index < options.replicas; ++index) devices.push_back(c10::str("gpu:", index));
  return devices;
}

std::vector<std::string> requested_devices(const TrainOptions& options) {
  if (!options.devices.empty()) {
    try {
      parse_devices(options.devices);
    } catch (const InvalidArgument& error) {
      throw UsageError(
          c10::str("--devices ", c10::Join(",", options.devices), ": ", without_origin(error.what())));
    }
    return options.devices;
  }
  if (options.replicas > 0) return devices_for_replicas(options);
  if (options.strategy == "one_device") return {num_gpus() > 0 ? "gpu:0" : "cpu:0"};
  return {};
}

void check_cuda_graph(const Devices& devices) {
  for (const auto& device : devices) {
    if (device.kind == DeviceKind::kGpu) continue;
    throw UsageError(c10::str("--cuda-graph: expected GPUs only, which alone have graphs, but got ",
                              device.str(), "; --devices names them"));
  }
}

std::shared_ptr<const ClusterResolver> requested_cluster(const TrainOptions& options) {
  if (options.strategy != "auto" && options.strategy != "multi_worker") {
    if (options.worker_hosts.empty()) return nullptr;
    throw UsageError(c10::str("--worker-hosts ", c10::Join(",", options.worker_hosts),
                              ": expected it with --strategy multi_worker only, but got --strategy ",
                              options.strategy));
  }
  ClusterFlags flags{.worker_hosts = options.worker_hosts};
  if (options.task_index >= 0) flags.task_index = options.task_index;
  try {
    return resolve_cluster(process_environment(), flags);
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

MadeStrategy choose_strategy(const TrainOptions& options) {
  StrategyRequest request{.devices = requested_devices(options),
                          .options = {.intra_op_threads = options.threads,
                                      .seed = options.seed,
                                      .replicas_per_device = options.replicas_per_device}};
  request.cluster_resolver = requested_cluster(options);
  request.options.communication.implementation = parse_communication(options.communication);
  request.options.communication.gradient_compression =
      make_gradient_compression(options.gradient_compression);
  std::string flags = "--strategy " + options.strategy;
  if (!options.devices.empty()) flags += " --devices " + c10::Join(",", options.devices);
  if (options.replicas_per_device != 1)
    flags += c10::str(" --replicas-per-device ", options.replicas_per_device);
  if (options.cross_device_ops != "auto") {
    request.options.cross_device_ops = make_cross_device_ops(options.cross_device_ops);
    flags += " --cross-device-ops " + options.cross_device_ops;
  }
  try {
    auto made = make_strategy(options.strategy, request);
    const auto* cluster = made.strategy->cluster_resolver();
    if (cluster != nullptr && cluster->task_type() == "evaluator") {
      throw UsageError(c10::str(cluster->source(), ": this task is evaluator ", cluster->task_id(),
                                ", which evaluates only, and train_mnist trains: start a chief or a worker"));
    }
    if (options.cuda_graph) check_cuda_graph(made.strategy->devices());
    return made;
  } catch (const InvalidArgument& error) {
    throw UsageError(flags + ": " + without_origin(error.what()));
  }
}

}  // namespace lockstep::apps
