#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/cluster/host_port.h"

namespace lockstep {

/// Whether `name` is one of the four task types: chief, worker, evaluator, ps.
bool is_task_type(std::string_view name);

/// The four task types, for error messages.
inline constexpr char kTaskTypes[] = "chief, worker, evaluator or ps";

/// The tasks of a cluster and their addresses. A job consists of all tasks of one type; their indices need
/// not be contiguous. Immutable.
///
/// Example:
///
///     const ClusterSpec spec({{"worker", {{0, HostPort{"host-a", 2222}}, {1, HostPort{"host-b", 2222}}}}});
///     std::cout << spec.num_tasks("worker") << " workers\n";
class ClusterSpec {
 public:
  using Tasks = std::map<int, HostPort>;  ///< By task index.
  using Jobs = std::map<std::string, Tasks>;

  /// Makes an empty spec: a single process.
  ClusterSpec() = default;

  /// Leaves out jobs without tasks. Throws InvalidArgument for a job name other than chief, worker, evaluator
  /// and ps, a negative index, a chief whose index is not 0, and an address that two tasks share.
  explicit ClusterSpec(Jobs jobs);

  bool empty() const { return jobs_.empty(); }
  const Jobs& jobs() const { return jobs_; }
  bool has_job(const std::string& job) const { return jobs_.contains(job); }
  bool has_task(const std::string& job, int index) const;

  /// Returns 0 if the job does not exist.
  int num_tasks(const std::string& job) const;

  /// Returns the indices in ascending order; empty if the job does not exist.
  std::vector<int> task_indices(const std::string& job) const;

  /// Throws InvalidArgument if the task does not exist.
  const HostPort& task_address(const std::string& job, int index) const;

  /// Returns the number of chiefs and workers.
  int num_training_tasks() const { return num_tasks("chief") + num_tasks("worker"); }

  /// Returns the rank of a task among those that train: 0 for the chief, then the workers by index. Throws
  /// InvalidArgument for an evaluator, a ps, and a task that does not exist.
  int training_rank(const std::string& job, int index) const;

  /// Returns the addresses of the tasks that train, by rank.
  std::vector<HostPort> training_addresses() const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  Jobs jobs_;
};

}  // namespace lockstep
