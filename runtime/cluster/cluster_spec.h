#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/cluster/host_port.h"

namespace lockstep {

/// Whether `name` is one of the four kinds of tasks: chief, worker, evaluator, ps.
bool is_task_type(std::string_view name);

/// The four, for error messages.
inline constexpr char kTaskTypes[] = "chief, worker, evaluator or ps";

/// Which tasks a cluster has and where they listen. A job is all tasks of one type; their indices need not be
/// contiguous. Immutable.
class ClusterSpec {
 public:
  using Tasks = std::map<int, HostPort>;  ///< by task index
  using Jobs = std::map<std::string, Tasks>;

  /// No cluster: a single process.
  ClusterSpec() = default;

  /// Jobs without tasks are left out. Throws InvalidArgument for a job name other than chief, worker,
  /// evaluator and ps, a negative index, a chief besides task 0, and an address that two tasks share.
  explicit ClusterSpec(Jobs jobs);

  bool empty() const { return jobs_.empty(); }
  const Jobs& jobs() const { return jobs_; }
  bool has_job(const std::string& job) const { return jobs_.contains(job); }
  bool has_task(const std::string& job, int index) const;

  /// 0 for a job that is not there.
  int num_tasks(const std::string& job) const;

  /// In ascending order; none for a job that is not there.
  std::vector<int> task_indices(const std::string& job) const;

  /// Throws InvalidArgument where there is no such task.
  const HostPort& task_address(const std::string& job, int index) const;

  /// The chief and the workers.
  int num_training_tasks() const { return num_tasks("chief") + num_tasks("worker"); }

  /// Counts the tasks that train: the chief is 0, the workers follow by index. Throws InvalidArgument for an
  /// evaluator, a ps, and a task that is not there.
  int training_rank(const std::string& job, int index) const;

  /// The addresses of the tasks that train, by rank.
  std::vector<HostPort> training_addresses() const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  Jobs jobs_;
};

}  // namespace lockstep
