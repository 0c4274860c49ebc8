#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/number_argument.h"

namespace lockstep::apps {
namespace {

constexpr const char* kServers = "parameter_server";
constexpr IntegerRange kThreads{.least = 1, .most = 1024};
constexpr IntegerRange kStages{.least = 0, .most = 3};
constexpr IntegerRange kTasks{.least = 0, .most = 1'000'000};
constexpr IntegerRange kSeconds{.least = 1, .most = 1'000'000};

}  // namespace

std::vector<Flag> strategy_flags(const std::vector<std::string>& strategies) {
  const StrategyChoice defaults;
  const bool has_servers = std::find(strategies.begin(), strategies.end(), kServers) != strategies.end();
  return {
      {"Strategy", "strategy", "NAME",
       fmt::format(
           "auto, {}. auto takes multi_worker in a cluster{}, one_device for one named device, mirrored for "
           "several replicas or GPUs, tpu for a plugin's TPUs, and default otherwise",
           fmt::join(strategies, ", "), has_servers ? ", parameter_server in a cluster with ps tasks" : ""),
       defaults.strategy},
      {"Strategy", "devices", "LIST",
       "Devices of the replicas, such as gpu:0,gpu:2 or cpu:0,cpu:1. There are as many logical CPUs as "
       "you name (default: all GPUs, or all of another accelerator, or the CPU)"},
      {"Strategy", "replicas", "N",
       "Use the first N GPUs, or N logical CPUs if there is no GPU, instead of --devices"},
      {"Strategy", "replicas-per-device", "N",
       "Replicas on each device, each with its own stream, to fill a GPU that one replica cannot",
       fmt::format("{}", defaults.replicas_per_device)},
      {"Strategy", "replica-weights", "WEIGHTS",
       "Cut each batch by these numbers, one for each replica, such as 1,3 for a CPU and a device that is "
       "three times as fast. measured takes the speeds of the first steps (default: equal pieces)"},
      {"Strategy", "mesh", "AXES",
       "Axes of the ranks of all workers with their sizes, such as data=2,shard=2. The last one should lie "
       "within a process. train_gpt cuts its model along an axis tensor, and train_gpt and train_images cut "
       "theirs into stages along an axis pipeline (default: one axis data)"},
      {"Strategy", "sharding", "N",
       "Divide memory among the replicas along the axis shard, or else the last one: 0 (nothing), 1 (the "
       "optimizer's state), 2 (gradients, too) or 3 (parameters, too)",
       fmt::format("{}", defaults.sharding)},
      {"Strategy", "host-optimizer-state", "",
       "Keep the optimizer's state of GPUs in the host's memory, and step on the CPU"},
      {"Strategy", "cross-device-ops", "NAME",
       "How replicas sum gradients: auto, nccl (GPUs), hierarchical_copy, reduction_to_one_device",
       defaults.cross_device_ops, FlagRole::kOperation},
      {"Strategy", "communication-timeout", "N",
       "Seconds that a replica waits for the others. Then it fails with an error that names them",
       fmt::format("{}", defaults.communication_timeout_seconds), FlagRole::kOperation},
      {"Strategy", "threads", "N",
       "Threads that the operators of each replica use (default: OMP_NUM_THREADS, else cores / replicas)", "",
       FlagRole::kOperation},
      {"Strategy", "worker-hosts", "LIST",
       "host:port of each worker process, with --task-index (default: the cluster of TF_CONFIG, "
       "torchrun, Kubernetes, srun or mpirun, whichever is found first)",
       "", FlagRole::kOperation},
      {"Strategy", "task-index", "N", "Number of this process among --worker-hosts, counted from 0", "",
       FlagRole::kProcess},
      {"Strategy", "communication", "NAME",
       "How workers communicate: auto, exchange (shared memory on one machine, else TCP), ring (Gloo) or "
       "nccl",
       defaults.communication, FlagRole::kOperation},
      {"Strategy", "exchange-algorithm", "NAME",
       "How exchanges between workers sum: auto (the fastest for each size), recursive_doubling, halving, "
       "direct or ring. ring changes the order of sums",
       defaults.exchange_algorithm, FlagRole::kOperation},
      {"Strategy", "encrypt", "NAME",
       "Encrypt exchanges between machines: on or off. Take off only on a network that is protected "
       "otherwise. Gloo and NCCL do not encrypt",
       defaults.encrypt, FlagRole::kOperation},
      {"Strategy", "gradient-compression", "NAME",
       "Send gradients between workers and over NCCL as float16 or bfloat16. none sends them unchanged",
       defaults.gradient_compression},
      {"Strategy", "list-devices", "", "Print the devices that can be used, and exit", "", FlagRole::kAction},
  };
}

void read_strategy(const Arguments& given, std::vector<std::string> strategies, StrategyChoice& choice) {
  strategies.insert(strategies.begin(), "auto");
  choice.strategy = given.name("strategy", strategies, choice.strategy);
  choice.devices = given.list("devices");
  choice.replicas = static_cast<int>(given.integer("replicas", kThreads, choice.replicas));
  choice.replicas_per_device =
      static_cast<int>(given.integer("replicas-per-device", kThreads, choice.replicas_per_device));
  if (given.has("replica-weights")) choice.replica_weights = given.text("replica-weights");
  if (given.has("replica-weights") && choice.replica_weights.empty())
    given.refuse("replica-weights", "measured, or positive numbers joined by commas");
  if (given.has("mesh")) choice.mesh = given.text("mesh");
  choice.sharding = static_cast<int>(given.integer("sharding", kStages, choice.sharding));
  choice.host_optimizer_state = given.is_on("host-optimizer-state");
  choice.cross_device_ops =
      given.name("cross-device-ops", {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"},
                 choice.cross_device_ops);
  choice.communication_timeout_seconds =
      given.integer("communication-timeout", kSeconds, choice.communication_timeout_seconds);
  for (const std::string flag : {"worker-hosts", "task-index"}) {
    if (given.has(flag) && given.has("worker-hosts") != given.has("task-index"))
      given.refuse_together(flag, "expected --worker-hosts and --task-index together");
  }
  choice.worker_hosts = given.list("worker-hosts");
  choice.task_index = static_cast<int>(given.integer("task-index", kTasks, choice.task_index));
  choice.communication =
      given.name("communication", {"auto", "ring", "exchange", "nccl"}, choice.communication);
  choice.exchange_algorithm =
      given.name("exchange-algorithm", {"auto", "recursive_doubling", "halving", "direct", "ring"},
                 choice.exchange_algorithm);
  if (choice.exchange_algorithm != "auto" && choice.communication != "auto" &&
      choice.communication != "exchange")
    given.refuse_together("exchange-algorithm", "expected it with --communication auto or exchange only");
  choice.encrypt = given.name("encrypt", {"on", "off"}, choice.encrypt);
  choice.gradient_compression =
      given.name("gradient-compression", {"none", "float16", "bfloat16"}, choice.gradient_compression);
  choice.threads = static_cast<int>(given.integer("threads", kThreads, choice.threads));
}

settings::NamedValues strategy_values(const StrategyChoice& choice) {
  using settings::where;
  return {{"strategy", choice.strategy},
          {"devices", settings::list(choice.devices)},
          {"replicas", settings::count(choice.replicas)},
          {"replicas-per-device", where(choice.replicas == 0, int64_t{choice.replicas_per_device})},
          {"replica-weights", settings::text(choice.replica_weights)},
          {"mesh", settings::text(choice.mesh)},
          {"sharding", int64_t{choice.sharding}},
          {"host-optimizer-state", choice.host_optimizer_state},
          {"cross-device-ops", choice.cross_device_ops},
          {"communication-timeout", choice.communication_timeout_seconds},
          {"threads", settings::count(choice.threads)},
          {"worker-hosts", settings::list(choice.worker_hosts)},
          {"task-index", where(choice.task_index >= 0, int64_t{choice.task_index})},
          {"communication", choice.communication},
          {"exchange-algorithm", choice.exchange_algorithm},
          {"encrypt", choice.encrypt},
          {"gradient-compression", choice.gradient_compression}};
}

std::vector<std::string> strategies_of_trainer(std::vector<std::string> strategies) {
  std::erase(strategies, kServers);
  return strategies;
}

}  // namespace lockstep::apps
