#pragma once

#include <optional>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

/// Where the workers of a job meet.
struct MasterAddress {
  HostPort address;
  std::optional<int> socket;  ///< bound to it, for worker 0; it belongs to the caller
};

/// The resolver's master; where that has only a file for it, worker 0 binds a port of the system's choice on
/// loopback and writes there which, and the others block until it is there. Throws ClusterError naming the
/// file where it does not appear within the join timeout, InvalidArgument where there is neither.
MasterAddress open_master(const ClusterResolver& resolver, const ClusterOptions& options);

}  // namespace lockstep
