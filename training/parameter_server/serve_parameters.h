#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

struct ServeParametersOptions {
  /// The folder of a ParameterServerBackup, which the chief and all servers see; empty: nothing is saved.
  std::string backup_dir;
  /// Gets a line for what there is to tell; called by any thread. Empty: std::cerr does.
  std::function<void(const std::string&)> on_message;
  /// Once this is true it serves those who are connected, of whom the chief may be about to save, and returns
  /// when none is any more. Asked several times a second; empty: never.
  std::function<bool()> is_leaving{};
};

/// A ps task's part in a ParameterServerStrategy: holds its share of the parameters until the chief ends the
/// job, or it is to leave. Goes on from the newest whole checkpoint in the folder, however many servers have
/// written it. Blocks.
///
/// `resolver` null: what resolve_cluster() finds in the environment; it listens at the task's address.
/// Throws InvalidArgument for another task than ps, CheckpointError where there are checkpoints and none can
/// be read, and ClusterError naming an address that cannot be listened on, and where for
/// `cluster.join_timeout` no other process was connected.
void serve_parameters(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                      const ServeParametersOptions& options = {},
                      const ClusterOptions& cluster = cluster_options(process_environment()));

}  // namespace lockstep
