#include "lockstep/apps/compare_strategies/trials/trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "lockstep/apps/compare_strategies/trials/child_processes.h"
#include "lockstep/apps/compare_strategies/trials/parameter_file.h"
#include "lockstep/runtime/base/net/tcp_listener.h"

namespace lockstep::apps {
namespace {

constexpr int kPeerLost = 5;
constexpr int kTimedOut = 124;

/// Launchers set these for a job that this process may belong to; its children do not belong to it.
constexpr std::array<const char*, 14> kLauncherVariables{
    "TF_CONFIG",     "LOCKSTEP_LISTEN_FD", "LOCKSTEP_JOB_TOKEN", "LOCKSTEP_JOB_ID",  "LOCKSTEP_RESTART_COUNT",
    "RANK",          "WORLD_SIZE",         "MASTER_ADDR",        "MASTER_PORT",      "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_ID", "PET_NNODES",         "PET_NODE_RANK",      "PET_RDZV_ENDPOINT"};

std::string make_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 8; ++i) token += fmt::format("{:08x}", random());
  return token;
}

/// A process's part in its job.
struct Task {
  std::string type;
  int index = 0;
};

/// Returns the tasks in the order of the processes. The first process knows most about the training.
std::vector<Task> tasks_of(const ComparedStrategy& strategy) {
  std::vector<Task> tasks;
  if (has_servers(strategy)) tasks.push_back({"chief", 0});
  for (int i = 0; i < num_workers(strategy); ++i) tasks.push_back({"worker", i});
  for (int i = 0; i < strategy.servers; ++i) tasks.push_back({"ps", i});
  return tasks;
}

/// Gives the tasks' commands loopback addresses. Each command inherits its listening socket.
std::vector<TcpListener> connect(const std::vector<Task>& tasks, std::vector<ChildCommand>& commands) {
  std::vector<TcpListener> listeners;
  std::map<std::string, std::vector<std::string>> addresses;  // by type
  for (const auto& task : tasks) {
    listeners.emplace_back("127.0.0.1", 0);
    addresses[task.type].push_back(fmt::format("\"127.0.0.1:{}\"", listeners.back().port()));
  }
  std::vector<std::string> cluster;
  cluster.reserve(addresses.size());
  for (const auto& [type, of_type] : addresses)
    cluster.push_back(fmt::format("\"{}\": [{}]", type, fmt::join(of_type, ", ")));
  const std::string token = make_token();
  for (size_t i = 0; i < commands.size(); ++i) {
    auto& command = commands[i];
    command.inherited = listeners[i].descriptor();
    command.variables["TF_CONFIG"] =
        fmt::format(R"({{"cluster": {{{}}}, "task": {{"type": "{}", "index": {}}}}})",
                    fmt::join(cluster, ", "), tasks[i].type, tasks[i].index);
    command.variables["LOCKSTEP_LISTEN_FD"] = fmt::format("{}", command.inherited);
    command.variables["LOCKSTEP_JOB_TOKEN"] = token;
  }
  return listeners;
}

/// Returns the last line that a process printed, without the prefix of errors.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  const std::string prefix = "compare_strategies: error: ";
  return last.starts_with(prefix) ? last.substr(prefix.size()) : last;
}

/// Returns the process that made the others fail: the first that failed other than by losing a peer.
size_t cause_of(const ChildEnds& ends) {
  for (size_t i = 0; i < ends.ends.size(); ++i) {
    const int code = ends.ends[i].exit_code;
    if (code != 0 && code != kPeerLost && !ends.ends[i].is_killed) return i;
  }
  return static_cast<size_t>(std::max(0, ends.first_failed));
}

TrialFailure failure_of(const ChildEnds& ends, const std::vector<Task>& tasks,
                        const std::vector<ChildCommand>& commands, const TrialSetup& setup) {
  if (ends.has_timed_out)
    return {kTimedOut, fmt::format("did not end within the {} s of --timeout", setup.timeout.count())};
  const size_t which = cause_of(ends);
  const int code = ends.ends[which].exit_code;
  std::string message = last_line(commands[which].output);
  if (code > kExitBySignal) {
    const char* name = sigabbrev_np(code - kExitBySignal);
    message = fmt::format("ended by SIG{}{}", name == nullptr ? "?" : name,
                          message.empty() ? "" : ", having printed: " + message);
  }
  if (message.empty()) message = "ended without saying why";
  if (commands.size() > 1) message = fmt::format("{} {}: {}", tasks[which].type, tasks[which].index, message);
  return {code, message};
}

}  // namespace

TrialResult run_trial(const TrialSetup& setup, const Trial& trial) {
  const std::string base = setup.folder + "/trial";
  std::vector<ChildCommand> commands;
  std::vector<MeasuringProcess> processes;
  const auto tasks = tasks_of(trial.strategy);
  for (size_t i = 0; i < tasks.size(); ++i) {
    processes.push_back({.strategy = trial.index,
                         .process = static_cast<int>(i),
                         .result = fmt::format("{}_{}.json", base, i),
                         .parameters = trial.wants_parameters && i == 0 ? base + ".parameters" : ""});
    std::filesystem::remove(processes.back().result);
    ChildCommand command{.arguments = {setup.program}, .output = fmt::format("{}_{}.log", base, i)};
    // These come first: after a "--" among the user's arguments they would not count as flags.
    const auto flags = measuring_flags(processes.back());
    command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
    command.arguments.insert(command.arguments.end(), setup.arguments.begin(), setup.arguments.end());
    for (const char* variable : kLauncherVariables) command.variables[variable] = "";
    // A process of libtpu takes all chips otherwise.
    if (trial.strategy.name == "tpu" && has_workers(trial.strategy))
      command.variables["TPU_VISIBLE_CHIPS"] = fmt::format("{}", i);
    commands.push_back(std::move(command));
  }
  ChildEnds ends;
  {
    std::vector<TcpListener> listeners;
    if (commands.size() > 1) listeners = connect(tasks, commands);
    ends = run_children(commands, {.timeout = setup.timeout, .is_cancelled = setup.is_cancelled});
  }
  if (ends.is_cancelled) throw TrialCancelled{};
  if (ends.has_timed_out || ends.first_failed >= 0) throw failure_of(ends, tasks, commands, setup);
  std::vector<MeasuredRun> runs;
  runs.reserve(processes.size());
  for (const auto& process : processes) runs.push_back(read_measured_run(process.result));
  TrialResult result{.run = has_servers(trial.strategy) ? merge_into_chief(runs) : merge_workers(runs),
                     .parameters = {}};
  if (trial.wants_parameters) result.parameters = read_parameter_file(processes.front().parameters);
  return result;
}

}  // namespace lockstep::apps
