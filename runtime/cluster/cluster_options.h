#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// How a process of a job finds the others, in addition to what its ClusterResolver says.
///
/// Example:
///
///     auto cluster = cluster_options(process_environment());
///     cluster.join_timeout = std::chrono::seconds(30);
///     MultiWorkerMirroredStrategy strategy(nullptr, {}, {}, cluster);
struct ClusterOptions {
  /// Address or name of this machine. All listening sockets except NCCL's are bound to it, and other
  /// processes use it to reach this one. Empty: the address of the network interface that leads to the
  /// master.
  std::string address;
  /// Secret shared by all processes of the job, from which the keys of its connections are derived. A token
  /// that can be guessed is refused; see check_job_token(). Empty: if all addresses of the job are loopback
  /// addresses, processes of the same user make a secret of their own; any other job is refused.
  std::string token;
  /// Socket bound to the port on which this process listens, if it was started with one.
  std::optional<int> listening_socket;
  /// How long a process waits for the others to join.
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  /// False: workers exchange values with this one over TCP even if they run on the same machine.
  bool uses_shared_memory = true;
};

/// Reads LOCKSTEP_ADDRESS, LOCKSTEP_JOB_TOKEN, LOCKSTEP_LISTEN_FD, LOCKSTEP_JOIN_TIMEOUT (seconds) and
/// LOCKSTEP_SHARED_MEMORY (0 or 1). Throws InvalidArgument naming a malformed variable, and what
/// check_job_token() throws.
ClusterOptions cluster_options(const Environment& environment);

/// Throws InvalidArgument naming `source` if a token could be guessed: if its length and the kinds of its
/// characters give it less than 128 bits of entropy. The message does not contain the token. The estimate
/// knows nothing of words and dates, so take a random token, such as `openssl rand -hex 32` prints.
void check_job_token(const std::string& token, const std::string& source = "LOCKSTEP_JOB_TOKEN");

}  // namespace lockstep
