#include "lockstep/apps/shared/session/worker_role.h"

#include <ATen/Parallel.h>

#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/writable_folder.h"

namespace lockstep::apps {

WorkerRole role_of(Strategy& strategy, const RunChoice& choice) {
  WorkerRole role;
  role.is_chief = is_chief_of(strategy);
  role.is_silent = !role.is_chief || choice.quiet;  // all workers would print the same
  role.is_recorded = is_given_to_chief(strategy, "--run-dir", choice.run_dir, role.is_chief);
  role.is_saved = is_given_to_chief(strategy, "--backup-dir", choice.backup_dir, role.is_chief);
  is_given_to_chief(strategy, "--mlflow-dir", choice.mlflow_dir, role.is_chief);
  if (role.is_chief || choice.shard_backup) require_writable_folder("--backup-dir", choice.backup_dir);
  if (role.is_chief) require_writable_folder("--mlflow-dir", choice.mlflow_dir);
  if (role.is_recorded) role.hosts = hosts_of_workers(strategy);
  return role;
}

int threads_per_replica(Strategy& strategy) {
  const auto threads = strategy.run([](ReplicaContext&) { return at::get_num_threads(); });
  return threads.local_values().front();
}

}  // namespace lockstep::apps
