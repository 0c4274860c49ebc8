#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/runtime/base/net/secret_grant.h"
#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// The secret with which the processes of a job know each other.
struct JobSecret {
  std::string token;  ///< never empty
  /// In the first task: what its server, at the master's address, gives to the other tasks. nullptr if they
  /// know the secret without it.
  std::shared_ptr<const SecretGrant> grant;
};

/// Where the job's first task, which is rank 0, gives out the secret.
struct FirstTask {
  uint64_t generation = 0;  ///< of the job's start, if tasks of another one must not get the secret
  /// Finds the address of its server; blocks. Empty: it is the resolver's master.
  std::function<HostPort()> find_address{};
};

/// Returns the secret of a job of several processes. Call it once, before anything listens or connects. The
/// first of these sources that there is gives the secret:
///
/// 1. Certificates or MUNGE, if `options` asks for them. The first task makes a secret. In other tasks, this
///    blocks until the first task has given it to them, for at most the join timeout. With a token as well,
///    the secret is derived from both.
/// 2. The token in `options`.
/// 3. Under Slurm, MUNGE, if it is there and the resolver knows the first task's address.
/// 4. user_secret() and the job id, if all addresses that this process knows (the cluster's, the master's and
///    its own) are loopback addresses: only processes of this user can join, and jobs with different ids do
///    not mix.
///
/// Throws InvalidArgument if the token could be guessed, if there is no source, or if one cannot be used; the
/// message names all sources. Throws ClusterError if the first task does not give the secret. Does not
/// resolve names to find out what is on loopback: "localhost" is the only name that counts.
JobSecret job_secret(const ClusterResolver& resolver, const ClusterOptions& options,
                     const FirstTask& first = {}, const Environment& environment = process_environment());

}  // namespace lockstep
