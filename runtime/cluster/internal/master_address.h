#pragma once

#include <optional>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

/// The address where the workers of a job meet.
struct MasterAddress {
  HostPort address;
  std::optional<int> socket;  ///< socket of worker 0 bound to the address; owned by the caller
};

/// Returns the resolver's master address. If the resolver only has a file for it, worker 0 binds a free port
/// on loopback and writes the address to the file; the other workers block until the file exists. Throws
/// ClusterError naming the file if it does not appear within the join timeout, and InvalidArgument if the
/// resolver has neither.
MasterAddress open_master(const ClusterResolver& resolver, const ClusterOptions& options);

}  // namespace lockstep
