#pragma once

// Internal: only sources of its layer need it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/parameter_server/rpc_client.h"
#include "lockstep/strategies/closure_values.h"
#include "lockstep/strategies/closure_work.h"

namespace lockstep {

struct ClosureWorkerOptions {
  RpcClientOptions coordinator;
  std::string name;                              ///< such as "worker 1"
  std::chrono::milliseconds beat_interval{300};  ///< how often the coordinator hears that this worker lives
  /// Asked between two closures: whether the worker is to go once those that it has are done. Empty: it is
  /// not.
  std::function<bool()> is_leaving;
};

/// Runs closures for a coordinator, one after another in the calling thread, until it has no more or this
/// worker goes. Blocks. A
/// coordinator that is lost is waited for as long as its connect_timeout says.
///
/// What beginning or working on a closure throws goes to the coordinator, as does that what it returns cannot
/// be sent. Throws PeerLost and ClusterError as RpcClient.
void serve_closures(
    const ClosureWorkerOptions& options,
    const std::function<std::unique_ptr<ClosureWork>(uint64_t closure, const std::string& function,
                                                     const ClosureValues& arguments)>& begin);

}  // namespace lockstep
