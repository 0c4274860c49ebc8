#pragma once

#include <string>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Returns the secret with which the processes of a job of several processes know each other; never empty.
/// Call it before anything listens or connects.
///
/// With a token in `options`, this is the token. Without one, if all addresses that this process knows (the
/// cluster's, the master's and its own) are loopback addresses, it is derived from user_secret() and the job
/// id: only processes of this user can join, and jobs with different ids do not mix.
///
/// Throws InvalidArgument if the token could be guessed, if there is no token and an address is not a
/// loopback address, or if user_secret() throws. The message says how to make a token. Does not resolve
/// names: "localhost" is the only name that counts as loopback.
std::string job_secret(const ClusterResolver& resolver, const ClusterOptions& options,
                       const Environment& environment = process_environment());

}  // namespace lockstep
