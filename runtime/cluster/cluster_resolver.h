#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_spec.h"

namespace lockstep {

/// Tells which processes a job has and which of them this process is. Immutable, thread-safe, and never
/// blocks. To write your own, derive from FixedClusterResolver.
///
/// Example:
///
///     const std::unique_ptr<ClusterResolver> cluster = resolve_cluster(process_environment());
///     if (cluster) std::cout << "rank " << cluster->rank() << " of " << cluster->world_size() << '\n';
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  /// Returns one line about the source of the answers, such as "torchrun (RANK=1 of WORLD_SIZE=2)".
  virtual std::string source() const = 0;

  /// Returns an empty spec for a single process, and if the launcher gives no addresses.
  virtual ClusterSpec cluster_spec() const = 0;

  /// Returns chief, worker, evaluator or ps. If a launcher knows only ranks, all its processes are workers,
  /// including rank 0.
  virtual std::string task_type() const = 0;
  virtual int task_id() const = 0;

  /// Returns the rank among the processes that train, 0 to world_size() - 1. Throws InvalidArgument for an
  /// evaluator and a ps.
  virtual int rank() const = 0;

  /// Returns the number of processes that train.
  virtual int world_size() const = 0;

  /// Returns the address at which rank 0's store listens. None for a single process, and if rank 0 publishes
  /// the address in rendezvous_file().
  virtual std::optional<HostPort> master() const = 0;

  /// Whether the launcher already runs a store at master(), as torchrun's agent does.
  virtual bool is_master_served_by_launcher() const { return false; }

  /// Returns the rank among the processes of this machine.
  virtual int local_rank() const { return 0; }
  virtual int local_world_size() const { return 1; }

  /// Returns how often the launcher has restarted this job.
  virtual int restart_count() const { return 0; }

  /// Returns the launcher's name for this job, which is the same in all its processes. Empty if it has none.
  virtual std::string job_id() const { return ""; }

  /// Returns a path that all processes of this job, and no others, share. Rank 0 writes its address there.
  /// The file does not exist yet; its folder does.
  virtual std::optional<std::string> rendezvous_file() const { return std::nullopt; }
};

/// Answers of a ClusterResolver.
struct ClusterMembership {
  std::string source;
  ClusterSpec cluster_spec;
  std::string task_type = "worker";
  int task_id = 0;
  std::optional<int> rank = 0;  ///< None for an evaluator and a ps.
  int world_size = 1;
  std::optional<HostPort> master;
  bool is_master_served_by_launcher = false;
  int local_rank = 0;
  int local_world_size = 1;
  int restart_count = 0;
  std::string job_id;
  std::optional<std::string> rendezvous_file;
};

/// Returns the membership of one task of `spec`. Its rank is ClusterSpec::training_rank(); the master is rank
/// 0. Training tasks with the same host count as processes of one machine. If `spec` is empty, a chief or
/// worker is a single process. Throws InvalidArgument for an unknown type, a negative id, and a task that is
/// not in `spec`. An evaluator need not be in it if `spec` lists no evaluators.
ClusterMembership make_membership(const std::string& source, const ClusterSpec& spec,
                                  const std::string& task_type, int task_id);

/// A ClusterResolver that returns the answers it was given.
///
/// Example:
///
///     struct MyClusterResolver : FixedClusterResolver {
///       explicit MyClusterResolver(int rank)
///           : FixedClusterResolver({.source = "my launcher", .task_id = rank, .rank = rank, .world_size = 2,
///                                   .master = HostPort{"10.0.0.1", 2222}}) {}
///     };
class FixedClusterResolver : public ClusterResolver {
 public:
  explicit FixedClusterResolver(ClusterMembership membership);

  const ClusterMembership& membership() const { return membership_; }

  std::string source() const override { return membership_.source; }
  ClusterSpec cluster_spec() const override { return membership_.cluster_spec; }
  std::string task_type() const override { return membership_.task_type; }
  int task_id() const override { return membership_.task_id; }
  int rank() const override;
  int world_size() const override { return membership_.world_size; }
  std::optional<HostPort> master() const override { return membership_.master; }
  bool is_master_served_by_launcher() const override { return membership_.is_master_served_by_launcher; }
  int local_rank() const override { return membership_.local_rank; }
  int local_world_size() const override { return membership_.local_world_size; }
  int restart_count() const override { return membership_.restart_count; }
  std::string job_id() const override { return membership_.job_id; }
  std::optional<std::string> rendezvous_file() const override { return membership_.rendezvous_file; }

 private:
  ClusterMembership membership_;
};

/// A task of a cluster that the program itself knows.
///
/// Example:
///
///     SimpleClusterResolver resolver({"10.0.0.1:2222", "10.0.0.2:2222"}, 0);
class SimpleClusterResolver : public FixedClusterResolver {
 public:
  /// Throws as make_membership() does.
  SimpleClusterResolver(const ClusterSpec& spec, const std::string& task_type, int task_id);

  /// Takes the values of the flags --worker-hosts (a list of host:port) and --task-index. Throws
  /// InvalidArgument naming the flag.
  SimpleClusterResolver(const std::vector<std::string>& worker_hosts, int task_index);
};

}  // namespace lockstep
