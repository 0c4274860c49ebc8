#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/number_argument.h"

namespace lockstep::apps {
namespace {

constexpr const char* kServers = "parameter_server";
constexpr IntegerRange kThreads{.least = 1, .most = 1024};
constexpr IntegerRange kTasks{.least = 0, .most = 1'000'000};
constexpr IntegerRange kSeconds{.least = 1, .most = 1'000'000};

}  // namespace

std::vector<Flag> strategy_flags(const std::vector<std::string>& strategies) {
  const StrategyChoice defaults;
  const bool has_servers = std::find(strategies.begin(), strategies.end(), kServers) != strategies.end();
  return {
      {"Strategy", "strategy", "NAME",
       fmt::format("auto, {}. auto takes multi_worker where a cluster is given (below){}, one_device for one "
                   "named device, mirrored for several replicas or GPUs, else default",
                   fmt::join(strategies, ", "),
                   has_servers ? ", parameter_server where that has ps tasks" : ""),
       defaults.strategy},
      {"Strategy", "devices", "LIST",
       "Devices of the replicas, such as gpu:0,gpu:2 or cpu:0,cpu:1; any number of logical CPUs exists "
       "(default: all GPUs, else the CPU)"},
      {"Strategy", "replicas", "N",
       "Instead of --devices: the first N GPUs, or N logical CPUs where there is no GPU"},
      {"Strategy", "replicas-per-device", "N",
       "Replicas on each device, to fill a GPU that one cannot; each has a stream of its own",
       fmt::format("{}", defaults.replicas_per_device)},
      {"Strategy", "cross-device-ops", "NAME",
       "How replicas sum gradients: auto, nccl (GPUs), hierarchical_copy, reduction_to_one_device",
       defaults.cross_device_ops},
      {"Strategy", "communication-timeout", "N",
       "Seconds that a replica waits for the others before it fails with an error that names them",
       fmt::format("{}", defaults.communication_timeout_seconds)},
      {"Strategy", "threads", "N",
       "Threads inside the operators of each replica (default: the cores over the replicas)"},
      {"Strategy", "worker-hosts", "LIST",
       "host:port of every worker process, with --task-index (default: the cluster of TF_CONFIG, torchrun, "
       "Kubernetes, srun or mpirun, the first of these that is there)"},
      {"Strategy", "task-index", "N", "Which of --worker-hosts this process is, from 0", "",
       FlagRole::kProcess},
      {"Strategy", "communication", "NAME", "Between workers: auto, ring (Gloo), nccl",
       defaults.communication},
      {"Strategy", "gradient-compression", "NAME",
       "Gradients travel as float16 or bfloat16, or as they are (none), between workers and over NCCL",
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
  choice.cross_device_ops =
      given.name("cross-device-ops", {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"},
                 choice.cross_device_ops);
  choice.communication_timeout_seconds =
      given.integer("communication-timeout", kSeconds, choice.communication_timeout_seconds);
  for (const std::string flag : {"worker-hosts", "task-index"}) {
    if (given.has(flag) && given.has("worker-hosts") != given.has("task-index"))
      given.refuse_beside(flag, "expected --worker-hosts and --task-index together");
  }
  choice.worker_hosts = given.list("worker-hosts");
  choice.task_index = static_cast<int>(given.integer("task-index", kTasks, choice.task_index));
  choice.communication = given.name("communication", {"auto", "ring", "nccl"}, choice.communication);
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
          {"cross-device-ops", choice.cross_device_ops},
          {"communication-timeout", choice.communication_timeout_seconds},
          {"threads", settings::count(choice.threads)},
          {"worker-hosts", settings::list(choice.worker_hosts)},
          {"task-index", where(choice.task_index >= 0, int64_t{choice.task_index})},
          {"communication", choice.communication},
          {"gradient-compression", choice.gradient_compression}};
}

std::vector<std::string> strategies_of_trainer(std::vector<std::string> strategies) {
  std::erase(strategies, kServers);
  return strategies;
}

}  // namespace lockstep::apps
