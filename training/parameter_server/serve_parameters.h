#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

struct ServeParametersOptions {
  /// Folder of a ParameterServerBackup, which the chief and all servers must see. If empty, nothing is saved.
  std::string backup_dir;
  /// Receives one line for each message; any thread may call it. If empty, messages go to std::cerr.
  std::function<void(const std::string&)> on_message;
  /// Returns whether the server should leave. It still serves connected processes, because the chief may be
  /// about to save, and leaves once none is connected. Called several times a second. If empty, the server
  /// stays until the job ends.
  std::function<bool()> is_leaving{};
  /// Folder on the local disk for the rows of tables that grow that do not fit into their limit of memory.
  /// Each server makes a folder of its own there, such as ps-0, and empties it when it starts: checkpoints
  /// keep rows, not this folder. If empty, such tables remove rows.
  std::string table_disk{};
};

/// Runs a ps task of a ParameterServerStrategy: holds its share of the parameters until the chief ends the
/// job or `is_leaving` makes it leave. Blocks. Resumes from the newest whole checkpoint in the folder,
/// however many servers wrote it.
///
/// If `resolver` is null, resolve_cluster() finds it in the environment. The server listens at the task's
/// address. Throws InvalidArgument if the task is not a ps, or if the job has no secret and is not on
/// loopback, or if there is a `table_disk` in a build without RocksDB; FolderInUse if another server uses the
/// same one; CheckpointError if there are checkpoints but none can be read; and ClusterError if the address,
/// which it names, cannot be listened on, or if no other process was connected for `cluster.join_timeout`.
void serve_parameters(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                      const ServeParametersOptions& options = {},
                      const ClusterOptions& cluster = cluster_options(process_environment()));

}  // namespace lockstep
