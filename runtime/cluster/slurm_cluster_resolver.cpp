#include "lockstep/runtime/cluster/slurm_cluster_resolver.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/cluster/internal/slurm_nodes.h"

namespace lockstep {
namespace {

constexpr char kSlurm[] = "Slurm";
constexpr int kLastPort = 65535;
constexpr int kMaxSlurmTasks = 1 << 20;

/// The first of `names` that is set, or else the first of all.
std::string first_set(const LauncherVariables& variables, const std::vector<std::string>& names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return variables.has(name); });
  return found == names.end() ? names.front() : *found;
}

// The step's variable first, then the job's.
std::vector<std::string> node_list_variables() {
  return {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
}
std::vector<std::string> task_count_variables() {
  return {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"};
}

std::string num_tasks_variable(const LauncherVariables& variables) {
  return first_set(variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
}

/// The place of a task in the job.
struct TaskPosition {
  int node = 0;
  int local_index = 0;

  bool operator==(const TaskPosition&) const = default;
};

/// Gives up to `tasks_at_once` tasks to each node in turn, until every node has its own.
std::vector<TaskPosition> place_tasks(const std::vector<int>& tasks_per_node, int tasks_at_once) {
  std::vector<TaskPosition> positions;
  std::vector<int> open_nodes(tasks_per_node.size());
  std::iota(open_nodes.begin(), open_nodes.end(), 0);
  for (int begin = 0; !open_nodes.empty(); begin += tasks_at_once) {
    for (const int node : open_nodes) {
      const int end = std::min(begin + tasks_at_once, tasks_per_node[node]);
      for (int i = begin; i < end; ++i) positions.push_back({.node = node, .local_index = i});
    }
    std::erase_if(open_nodes, [&](int node) { return tasks_per_node[node] <= begin + tasks_at_once; });
  }
  return positions;
}

/// The tasks of a step, from the variables that every task has.
class SlurmStep {
 public:
  explicit SlurmStep(const LauncherVariables& variables) : variables_(variables) {
    const std::string tasks_name = num_tasks_variable(variables_);
    num_tasks_ = variables_.integer(tasks_name, {.least = 1, .most = kMaxSlurmTasks});
    const std::string list_name = first_set(variables_, node_list_variables());
    nodes_ = expand_slurm_nodes(variables_.text(list_name), {.source = kSlurm, .name = list_name});
    const std::string counts_name = first_set(variables_, task_count_variables());
    tasks_per_node_ =
        expand_slurm_counts(variables_.text(counts_name), {.source = kSlurm, .name = counts_name});

    const std::string as_in_list = std::to_string(nodes_.size()) + ", the nodes of " + list_name;
    const int num_nodes = static_cast<int>(nodes_.size());
    const std::string nodes_name =
        first_set(variables_, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
    if (variables_.find_integer(nodes_name, {.least = 1}).value_or(num_nodes) != num_nodes) {
      variables_.refuse(nodes_name, as_in_list);
    }
    if (tasks_per_node_.size() != nodes_.size()) variables_.refuse(counts_name, "counts for " + as_in_list);
    const auto sum = std::accumulate(tasks_per_node_.begin(), tasks_per_node_.end(), int64_t{0});
    if (sum != num_tasks_) {
      variables_.refuse(tasks_name, std::to_string(sum) + ", the sum of " + counts_name);
    }
    positions_ = place_tasks(tasks_per_node_, tasks_at_once());
  }

  int num_tasks() const { return num_tasks_; }
  int num_tasks_of(int node) const { return tasks_per_node_[node]; }

  /// Throws if Slurm placed this task elsewhere.
  TaskPosition position_of(int rank) const {
    const TaskPosition given = {
        .node = variables_.integer("SLURM_NODEID", {.most = static_cast<int>(nodes_.size()) - 1}),
        .local_index = variables_.integer("SLURM_LOCALID", {})};
    const TaskPosition expected = positions_[rank];
    if (given == expected) return given;
    throw InvalidArgument("[Slurm] expected SLURM_PROCID=" + std::to_string(rank) +
                          " on SLURM_NODEID=" + std::to_string(expected.node) +
                          " with SLURM_LOCALID=" + std::to_string(expected.local_index) + ", but got " +
                          std::to_string(given.node) + " and " + std::to_string(given.local_index) +
                          ": start it with srun --distribution=block");
  }

  ClusterSpec cluster_spec(int port_base) const {
    const int most_tasks = *std::max_element(tasks_per_node_.begin(), tasks_per_node_.end());
    if (port_base < 1 || port_base > kLastPort - most_tasks + 1) {
      throw InvalidArgument(
          "[Slurm] expected a port_base from 1 to " + std::to_string(kLastPort - most_tasks + 1) + " for " +
          std::to_string(most_tasks) + " tasks on a node, but got " + std::to_string(port_base));
    }
    ClusterSpec::Tasks workers;
    for (int rank = 0; rank < num_tasks_; ++rank) {
      const TaskPosition& position = positions_[rank];
      const std::string host = parse_host(nodes_[position.node], {.source = kSlurm, .name = "a node's name"});
      workers.emplace(rank, HostPort{.host = host, .port = port_base + position.local_index});
    }
    return ClusterSpec({{"worker", std::move(workers)}});
  }

 private:
  /// Returns how many tasks a node gets before the next one gets some. Every task throws if none can know, so
  /// that none waits for those that find themselves elsewhere.
  int tasks_at_once() const {
    if (nodes_.size() == 1) return kMaxSlurmTasks;
    constexpr char kDistribution[] = "SLURM_DISTRIBUTION";
    const std::string text = variables_.find_text(kDistribution).value_or("block");
    const std::string method = text.substr(0, text.find_first_of(":,"));
    if (method == "cyclic") return 1;
    if (method == "plane") {
      return variables_.integer("SLURM_DIST_PLANESIZE", {.least = 1, .most = kMaxSlurmTasks});
    }
    if (method == "arbitrary") {
      variables_.refuse(kDistribution, "block, cyclic or plane (start it with srun --distribution=block)");
    }
    return kMaxSlurmTasks;
  }

  const LauncherVariables& variables_;
  int num_tasks_ = 1;
  std::vector<std::string> nodes_;
  std::vector<int> tasks_per_node_;
  std::vector<TaskPosition> positions_;
};

ClusterMembership read_slurm(const Environment& environment, const SlurmClusterOptions& options) {
  const LauncherVariables variables(environment, kSlurm);
  const SlurmStep step(variables);
  const int rank = variables.integer("SLURM_PROCID", {.most = step.num_tasks() - 1});
  const TaskPosition position = step.position_of(rank);
  ClusterMembership membership;
  membership.cluster_spec = step.cluster_spec(options.port_base);
  membership.task_id = rank;
  membership.rank = rank;
  membership.world_size = step.num_tasks();
  membership.local_rank = position.local_index;
  membership.local_world_size = step.num_tasks_of(position.node);
  membership.restart_count = variables.find_integer("SLURM_RESTART_COUNT", {}).value_or(0);

  HostPort master = membership.cluster_spec.task_address("worker", 0);
  if (const auto host = variables.find_text("MASTER_ADDR")) {
    master.host = parse_host(*host, {.source = kSlurm, .name = "MASTER_ADDR"});
  }
  master.port = variables.find_integer("MASTER_PORT", {.least = 1, .most = kLastPort}).value_or(master.port);
  membership.master = master;

  const std::string job = std::to_string(variables.integer("SLURM_JOB_ID", {}));
  const std::string step_id = std::to_string(variables.integer("SLURM_STEP_ID", {}));
  membership.job_id = job + "." + step_id;
  membership.source = "Slurm (step " + membership.job_id + ", SLURM_PROCID=" + std::to_string(rank) + " of " +
                      num_tasks_variable(variables) + "=" + std::to_string(membership.world_size) + ")";
  return membership;
}

/// Slurm's internal steps, such as a batch script or salloc's shell, have the highest numbers.
bool is_step_of_srun(const std::string& step_id) {
  constexpr uint64_t kFirstSpecialStep = 0xFFFFFFF0;
  uint64_t number = 0;
  const auto error = std::from_chars(step_id.data(), step_id.data() + step_id.size(), number).ec;
  return error != std::errc() || number < kFirstSpecialStep;
}

}  // namespace

SlurmClusterResolver::SlurmClusterResolver(const Environment& environment, const SlurmClusterOptions& options)
    : FixedClusterResolver(read_slurm(environment, options)) {}

bool SlurmClusterResolver::detects(const Environment& environment) {
  const auto rank = environment("SLURM_PROCID");
  const auto step_id = environment("SLURM_STEP_ID");
  if (!rank || !step_id || !is_step_of_srun(*step_id)) return false;
  const auto num_tasks = environment(num_tasks_variable({environment, kSlurm}));
  if (num_tasks == "1" && environment("SLURM_PTY_PORT")) return false;
  const auto mpi_rank = environment("OMPI_COMM_WORLD_RANK");
  const auto mpi_size = environment("OMPI_COMM_WORLD_SIZE");
  return !mpi_rank || (mpi_rank == rank && mpi_size == num_tasks);
}

std::vector<std::string> SlurmClusterResolver::missing_variables(const Environment& environment) {
  const LauncherVariables variables(environment, kSlurm);
  const auto num_tasks = environment(num_tasks_variable(variables));
  if (variables.has("SLURM_STEP_ID") || !num_tasks || *num_tasks == "0" || *num_tasks == "1") return {};
  std::vector<std::string> missing;
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"}) {
    if (!variables.has(name)) missing.emplace_back(name);
  }
  for (const auto& names : {node_list_variables(), task_count_variables()}) {
    if (!variables.has(first_set(variables, names))) missing.push_back(names.front());
  }
  return missing;
}

}  // namespace lockstep
