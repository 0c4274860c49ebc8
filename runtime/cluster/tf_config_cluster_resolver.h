#pragma once

#include <string>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Resolves the cluster that the variable TF_CONFIG describes; see parse_tf_config(). The master is the
/// chief, or the first worker if there is no chief. TF_CONFIG cannot hold the job's name and number of
/// restarts; they come from LOCKSTEP_JOB_ID and LOCKSTEP_RESTART_COUNT if these are set.
///
/// Example:
///
///     TFConfigClusterResolver resolver(process_environment());
///     std::cout << resolver.task_type() << ' ' << resolver.task_id() << '\n';
class TFConfigClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument if TF_CONFIG is not set, as parse_tf_config() does, and if LOCKSTEP_RESTART_COUNT
  /// is not a whole number of 0 or more. `source` is the answer of source().
  explicit TFConfigClusterResolver(const Environment& environment, const std::string& source = "TF_CONFIG");

  /// Whether TF_CONFIG is set, even if it is malformed.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
