#pragma once

#include <string>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// The cluster that the variable TF_CONFIG describes; see parse_tf_config(). The master is the chief or,
/// without one, the first worker. TF_CONFIG has no place for the job's name and for its restarts:
/// LOCKSTEP_JOB_ID and LOCKSTEP_RESTART_COUNT say them, where they are set.
class TFConfigClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument where TF_CONFIG is not set, as parse_tf_config(), and for a
  /// LOCKSTEP_RESTART_COUNT that is no whole number of 0 or more. `source` is what source() answers.
  explicit TFConfigClusterResolver(const Environment& environment, const std::string& source = "TF_CONFIG");

  /// Whether TF_CONFIG is set, be it well formed or not.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
