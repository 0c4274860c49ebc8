#include "lockstep/runtime/cluster/tpu_cluster_resolver.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/cluster/internal/tpu_variables.h"
#include "lockstep/runtime/cluster/torchrun_cluster_resolver.h"

namespace lockstep {
namespace {

constexpr char kTpuRank[] = "RANK";
constexpr char kTpuWorldSize[] = "WORLD_SIZE";
constexpr char kTpuLocalRank[] = "LOCAL_RANK";
constexpr char kTpuLocalWorldSize[] = "LOCAL_WORLD_SIZE";
constexpr char kTpuDevicesPerHost[] = "TORCH_TPU_DEVICES_PER_HOST";
constexpr char kTpuWorkerId[] = "TPU_WORKER_ID";
constexpr char kCompletionIndex[] = "JOB_COMPLETION_INDEX";
constexpr char kTpuTaskId[] = "CLOUD_TPU_TASK_ID";
constexpr char kTpuTopology[] = "TORCH_TPU_TOPOLOGY";
constexpr char kTpuSlices[] = "MEGASCALE_NUM_SLICES";
/// torch_tpu's, if MASTER_PORT is not set.
constexpr int kTpuMasterPort = 29500;

std::string assignment(const std::string& name, int value) {
  return name + "=" + std::to_string(value);
}

/// Derives the processes of the slice, and this one's place among them.
class TpuProcesses {
 public:
  explicit TpuProcesses(const TpuVariables& variables)
      : variables_(variables),
        launcher_(variables.launcher()),
        hosts_(variables.hosts()),
        processes_(variables.addresses(kTpuProcessAddresses)),
        slice_builders_(variables.addresses(kTpuSliceBuilderAddresses)) {
    if (launcher_.find_integer(kTpuSlices, {.least = 1}).value_or(1) > 1) {
      launcher_.refuse(kTpuSlices, "1: run a job of several slices as one job for each slice");
    }
    if (launcher_.has(kTpuRank) != launcher_.has(kTpuWorldSize)) {
      const bool has_rank = launcher_.has(kTpuRank);
      launcher_.refuse(
          has_rank ? kTpuWorldSize : kTpuRank,
          std::string("set together with ") + (has_rank ? kTpuRank : kTpuWorldSize) + ", as torchrun does");
    }
    count_processes();
    check_lists();
    find_rank();
    check_chips();
  }

  ClusterMembership membership() const {
    ClusterMembership membership;
    membership.source = "TPU (" + source_ + ")";
    membership.task_id = rank_;
    membership.rank = rank_;
    membership.world_size = count_;
    membership.local_rank = rank_ % per_host_;
    membership.local_world_size = per_host_;
    if (count_ > 1 || launcher_.has("MASTER_ADDR")) membership.master = master();
    return membership;
  }

 private:
  /// Sets count_, per_host_ and num_hosts_.
  void count_processes() {
    per_host_name_ = launcher_.has(kTpuLocalWorldSize) ? kTpuLocalWorldSize : kTpuDevicesPerHost;
    const auto per_host = launcher_.find_integer(per_host_name_, {.least = 1});
    const auto world_size = launcher_.find_integer(kTpuWorldSize, {.least = 1});
    const int listed_hosts = hosts_ ? static_cast<int>(hosts_->size()) : 1;
    if (world_size) {
      count_ = *world_size;
      count_name_ = assignment(kTpuWorldSize, count_);
    } else if (slice_builders_ || processes_) {
      const char* name = slice_builders_ ? kTpuSliceBuilderAddresses : kTpuProcessAddresses;
      count_ = static_cast<int>((slice_builders_ ? *slice_builders_ : *processes_).size());
      count_name_ = std::to_string(count_) + " in " + name;
      // Google's cloud lists the hosts.
      if (!slice_builders_ && hosts_ && count_ == listed_hosts && per_host) count_ *= *per_host;
    } else {
      count_ = listed_hosts * per_host.value_or(1);
      count_name_ = std::to_string(count_) + " on the hosts of " + kTpuWorkerHostnames;
    }
    per_host_ = per_host.value_or(count_ % number_of_hosts() == 0 ? count_ / number_of_hosts() : 1);
    if (hosts_ && listed_hosts * per_host_ != count_) {
      launcher_.refuse(per_host ? per_host_name_ : kTpuWorkerHostnames,
                       per_host ? "the number of processes of a host, " + count_name_ + " divided by the " +
                                      std::to_string(listed_hosts) + " hosts of " + kTpuWorkerHostnames
                                : "hosts with equal numbers of the processes, " + count_name_);
    }
    if (count_ % per_host_ != 0) {
      launcher_.refuse(per_host_name_, "a divisor of the number of processes, " + count_name_);
    }
    num_hosts_ = count_ / per_host_;
  }

  /// Returns the number of hosts that the lists name. Without any, every process has a host of its own,
  /// unless LOCAL_RANK says otherwise.
  int number_of_hosts() const {
    if (hosts_) return static_cast<int>(hosts_->size());
    const auto& addresses = slice_builders_ ? slice_builders_ : processes_;
    if (!addresses) {
      if (launcher_.has(kTpuLocalRank) && count_ > 1 && !launcher_.has(per_host_name_)) {
        launcher_.refuse(kTpuLocalWorldSize, std::string("set together with ") + kTpuLocalRank);
      }
      return count_;
    }
    std::set<std::string> names;
    for (const HostPort& address : *addresses) names.insert(address.host);
    return static_cast<int>(names.size());
  }

  bool lists_hosts(int length) const { return length == num_hosts_ && num_hosts_ != count_; }

  void check_lists() const {
    if (slice_builders_ && static_cast<int>(slice_builders_->size()) != count_) {
      launcher_.refuse(kTpuSliceBuilderAddresses, "one address for each process, " + count_name_);
    }
    if (processes_)
      check_count(kTpuProcessAddresses, static_cast<int>(processes_->size()), "one address for");
    const std::string bounds = variables_.either_of("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS");
    if (const auto product = variables_.product(bounds))
      check_count(bounds, *product, "sizes that multiply to");
    const auto devices = variables_.product(kTpuTopology);
    // Each host may know its own part of the slice only, in chips or in devices.
    if (devices && *devices != count_ && *devices != per_host_ &&
        *devices * variables_.devices_per_chip() != count_ &&
        *devices * variables_.devices_per_chip() != per_host_) {
      launcher_.refuse(kTpuTopology, "sizes that multiply to the number of processes, " + count_name_ +
                                         ", for each process uses one device");
    }
  }

  void check_count(const std::string& name, int count, const std::string& unit) const {
    if (count == count_ || lists_hosts(count)) return;
    const std::string hosts = num_hosts_ != count_ ? ", or of hosts, " + std::to_string(num_hosts_) : "";
    launcher_.refuse(name, unit + " the number of processes, " + count_name_ + hosts);
  }

  /// Whether CLOUD_TPU_TASK_ID counts processes, rather than the hosts that Google's cloud counts.
  bool task_id_is_rank() const {
    if (processes_) return !lists_hosts(static_cast<int>(processes_->size()));
    const auto bounds = variables_.product(variables_.either_of("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"));
    if (bounds) return !lists_hosts(*bounds);
    return slice_builders_.has_value() || num_hosts_ == count_;
  }

  void find_rank() {
    const auto worker = launcher_.find_integer(kTpuWorkerId, {.most = num_hosts_ - 1});
    const auto completion = launcher_.find_integer(kCompletionIndex, {.most = num_hosts_ - 1});
    if (worker && completion && worker != completion) {
      launcher_.refuse(kTpuWorkerId, "the same as " + assignment(kCompletionIndex, *completion) +
                                         ": unset whichever does not count the hosts of " +
                                         kTpuWorkerHostnames);
    }
    const int most_tasks = task_id_is_rank() ? count_ : num_hosts_;
    const auto task = launcher_.find_integer(kTpuTaskId, {.most = most_tasks - 1});
    const auto local = launcher_.find_integer(kTpuLocalRank, {.most = per_host_ - 1});
    if (const auto rank = launcher_.find_integer(kTpuRank, {.most = count_ - 1})) {
      rank_ = *rank;
      source_ = assignment(kTpuRank, rank_) + " of " + count_name_;
    } else if (task && task_id_is_rank()) {
      rank_ = *task;
      source_ = assignment(kTpuTaskId, rank_) + " of " + count_name_;
    } else {
      const auto host = worker ? worker : completion ? completion : task;
      if (!host && num_hosts_ > 1) {
        launcher_.refuse(kTpuWorkerId, std::string("the index of this host in ") +
                                           (hosts_ ? kTpuWorkerHostnames : "the list of hosts") +
                                           ", or RANK and WORLD_SIZE to be set");
      }
      if (!local && per_host_ > 1) {
        launcher_.refuse(kTpuLocalRank,
                         "the index of this process on its host, 0 to " + std::to_string(per_host_ - 1));
      }
      rank_ = host.value_or(0) * per_host_ + local.value_or(0);
      const char* host_name = worker ? kTpuWorkerId : completion ? kCompletionIndex : kTpuTaskId;
      source_ =
          host ? assignment(host_name, *host) + " of " + std::to_string(num_hosts_) + " hosts" : "one host";
      if (per_host_ > 1)
        source_ += ", " + assignment(kTpuLocalRank, *local) + " of " + std::to_string(per_host_);
    }
    if (task && *task != (task_id_is_rank() ? rank_ : rank_ / per_host_)) {
      launcher_.refuse(kTpuTaskId, "this process's index, which is " +
                                       std::to_string(task_id_is_rank() ? rank_ : rank_ / per_host_) +
                                       " by " + source_);
    }
    if (local && *local != rank_ % per_host_) {
      launcher_.refuse(kTpuLocalRank, std::to_string(rank_ % per_host_) +
                                          ", since the processes of a host have consecutive ranks, by " +
                                          source_);
    }
  }

  /// Refuses what would let two processes of this host use one chip, which libtpu gives to one process only.
  void check_chips() const {
    const auto chips = variables_.visible_chips();
    const std::string name = variables_.visible_chips_name();
    const std::string bounds =
        variables_.either_of("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS");
    const auto bounded = variables_.product(bounds);
    const auto process_bounds =
        variables_.product(variables_.either_of("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"));
    const bool bounds_hosts = process_bounds && lists_hosts(*process_bounds);
    if (bounded && bounds_hosts && per_host_ > *bounded * variables_.devices_per_chip()) {
      launcher_.refuse(bounds, "chips for the " + std::to_string(per_host_) +
                                   " processes of a host, or two processes would use one chip");
    }
    if (!chips) return;
    const int count = static_cast<int>(chips->size());
    if (bounded && !bounds_hosts && *bounded != count && *bounded != count * variables_.devices_per_chip()) {
      launcher_.refuse(
          bounds, "sizes that multiply to " + std::to_string(count) + ", the number of chips in " + name);
    }
    const int least = rank_ % per_host_ / variables_.devices_per_chip() * count;
    if (*std::min_element(chips->begin(), chips->end()) < least) {
      launcher_.refuse(name,
                       "chips from " + std::to_string(least) + " on for " +
                           assignment(kTpuLocalRank, rank_ % per_host_) +
                           ", or two processes would use one chip: a host's processes take its chips in "
                           "the order of their ranks");
    }
  }

  HostPort master() const {
    HostPort master;
    master.port = launcher_.find_integer("MASTER_PORT", {.least = 1, .most = 65535}).value_or(kTpuMasterPort);
    const auto& addresses = slice_builders_ ? slice_builders_ : processes_;
    if (const auto host = launcher_.find_text("MASTER_ADDR")) {
      master.host = parse_host(*host, {.source = "TPU", .name = "MASTER_ADDR"});
    } else if (hosts_) {
      master.host = hosts_->front();
    } else if (addresses) {
      master.host = addresses->front().host;
    } else {
      launcher_.refuse("MASTER_ADDR",
                       std::string("the host of rank 0, or ") + kTpuWorkerHostnames + " to be set");
    }
    return master;
  }

  const TpuVariables& variables_;
  const LauncherVariables& launcher_;
  const std::optional<std::vector<std::string>> hosts_;
  const std::optional<std::vector<HostPort>> processes_;
  const std::optional<std::vector<HostPort>> slice_builders_;
  int count_ = 1;
  std::string count_name_;  ///< Names count_ and its variable in errors.
  std::string per_host_name_;
  int per_host_ = 1;
  int num_hosts_ = 1;
  int rank_ = 0;
  std::string source_;
};

ClusterMembership read_tpu(const Environment& environment) {
  const TpuVariables variables(environment);
  ClusterMembership membership = TpuProcesses(variables).membership();
  if (variables.launcher().has("TORCHELASTIC_RUN_ID")) {
    const TorchrunClusterResolver torchrun(environment);
    membership.master = torchrun.master();
    membership.is_master_served_by_launcher = torchrun.is_master_served_by_launcher();
    membership.restart_count = torchrun.restart_count();
    membership.job_id = torchrun.job_id();
  }
  return membership;
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(const Environment& environment)
    : FixedClusterResolver(read_tpu(environment)) {}

bool TPUClusterResolver::detects(const Environment& environment) {
  const auto lists_several = [&](const char* name) {
    return environment(name).value_or("").find(',') != std::string::npos;
  };
  return lists_several(kTpuWorkerHostnames) || lists_several(kTpuProcessAddresses) ||
         lists_several(kTpuSliceBuilderAddresses);
}

}  // namespace lockstep
