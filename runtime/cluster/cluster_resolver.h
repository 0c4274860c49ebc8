#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_spec.h"

namespace lockstep {

/// Which processes a job has, and which of them this is. Immutable and thread-safe; nothing here blocks.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  /// One line: where the answers come from, such as "torchrun (RANK=1 of WORLD_SIZE=2)".
  virtual std::string source() const = 0;

  /// Empty where the launcher names no addresses, and for a single process.
  virtual ClusterSpec cluster_spec() const = 0;

  /// chief, worker, evaluator or ps. Launchers that know ranks only have workers, rank 0 too.
  virtual std::string task_type() const = 0;
  virtual int task_id() const = 0;

  /// Among the processes that train, 0 to world_size() - 1. Throws InvalidArgument for an evaluator and a ps.
  virtual int rank() const = 0;

  /// How many processes train.
  virtual int world_size() const = 0;

  /// Where rank 0's store listens. None for one process, and where rank 0 publishes it in rendezvous_file().
  virtual std::optional<HostPort> master() const = 0;

  /// Whether the launcher already runs a store at master(), as torchrun's agent does.
  virtual bool is_master_served_by_launcher() const { return false; }

  /// Among the processes of this machine.
  virtual int local_rank() const { return 0; }
  virtual int local_world_size() const { return 1; }

  /// How often the launcher has started this job again.
  virtual int restart_count() const { return 0; }

  /// The launcher's name for this job, the same in all its processes; empty where there is none.
  virtual std::string job_id() const { return ""; }

  /// A path that all processes of the job, and of this job only, have in common, for rank 0 to write there
  /// where it listens. The file does not exist yet; its folder does.
  virtual std::optional<std::string> rendezvous_file() const { return std::nullopt; }
};

/// What a ClusterResolver answers.
struct ClusterMembership {
  std::string source;
  ClusterSpec cluster_spec;
  std::string task_type = "worker";
  int task_id = 0;
  std::optional<int> rank = 0;  ///< none for an evaluator and a ps
  int world_size = 1;
  std::optional<HostPort> master;
  bool is_master_served_by_launcher = false;
  int local_rank = 0;
  int local_world_size = 1;
  int restart_count = 0;
  std::string job_id;
  std::optional<std::string> rendezvous_file;
};

/// The membership of one task of `spec`: its rank by ClusterSpec::training_rank(), the master being rank 0.
/// Training tasks with the same host count as processes of one machine. Without any training task in `spec`,
/// a chief or worker is a single process. Throws InvalidArgument for an unknown type and for a task that is
/// not in `spec`; an evaluator need not be.
ClusterMembership make_membership(const std::string& source, const ClusterSpec& spec,
                                  const std::string& task_type, int task_id);

/// Answers what it was given.
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
class SimpleClusterResolver : public FixedClusterResolver {
 public:
  /// Throws as make_membership().
  SimpleClusterResolver(const ClusterSpec& spec, const std::string& task_type, int task_id);

  /// The flags --worker-hosts, a list of host:port, and --task-index. Throws InvalidArgument naming the flag.
  SimpleClusterResolver(const std::vector<std::string>& worker_hosts, int task_index);
};

}  // namespace lockstep
