#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Files in PEM with which a process proves who runs it.
struct UserCertificate {
  std::string certificate;  ///< perhaps followed by those between it and the authority's
  std::string key;          ///< the certificate's private key, without a passphrase
  std::string authority;    ///< certificates of those that may issue certificates
};

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
  /// that can be guessed is refused; see check_job_token(). Empty: the first task makes a secret and gives it
  /// to the processes of the same user, if `certificate` or `uses_munge` says how they prove that they are.
  /// Otherwise, if all addresses of the job are loopback addresses, processes of the same user make a secret
  /// of their own; any other job is refused.
  std::string token;
  /// Lets the first task give a secret only to processes that have a certificate with the same subject from
  /// the same authority. With a token, too, a process needs both. Unset: without certificates.
  std::optional<UserCertificate> certificate{};
  /// True: the same by MUNGE, for processes of the same user. False: without MUNGE. Unset: true under Slurm,
  /// if there is a socket of MUNGE's, and neither a token nor a certificate.
  std::optional<bool> uses_munge{};
  /// Socket of the munged to use. Empty: MUNGE's own.
  std::string munge_socket;
  /// Socket bound to the port on which this process listens, if it was started with one.
  std::optional<int> listening_socket;
  /// How long a process waits for the others to join.
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  /// False: workers exchange values with this one over TCP even if they run on the same machine.
  bool uses_shared_memory = true;
};

/// Reads LOCKSTEP_ADDRESS, LOCKSTEP_JOB_TOKEN, LOCKSTEP_CERTIFICATE, LOCKSTEP_CERTIFICATE_KEY,
/// LOCKSTEP_CERTIFICATE_AUTHORITY, LOCKSTEP_MUNGE (0 or 1), LOCKSTEP_MUNGE_SOCKET, LOCKSTEP_LISTEN_FD,
/// LOCKSTEP_JOIN_TIMEOUT (seconds) and LOCKSTEP_SHARED_MEMORY (0 or 1). Throws InvalidArgument naming a
/// malformed variable, or one that is missing beside others, and what check_job_token() throws.
ClusterOptions cluster_options(const Environment& environment);

/// Throws InvalidArgument naming `source` if a token could be guessed: if its length and the kinds of its
/// characters give it less than 128 bits of entropy. The message does not contain the token. The estimate
/// knows nothing of words and dates, so take a random token, such as `openssl rand -hex 32` prints.
void check_job_token(const std::string& token, const std::string& source = "LOCKSTEP_JOB_TOKEN");

}  // namespace lockstep
