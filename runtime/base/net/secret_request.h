#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/secret_grant.h"

namespace lockstep {

struct SecretRequestOptions {
  std::string host;  ///< of the job's first task
  int port = 0;
  std::string task;        ///< this process, such as "worker 1"
  std::string first_task;  ///< the process that it asks, such as "worker 0"
  std::shared_ptr<const UserAuthentication> authentication;
  std::string job;          ///< the launcher's name for the job
  uint64_t generation = 0;  ///< of the job's start
  /// How long to wait for a first task that does not listen yet, or not any more.
  std::chrono::milliseconds timeout{60'000};
};

/// Gets the job's secret from its first task, which has a SecretGrant. Blocks. Throws ClusterError naming the
/// first task and its address: at once if it refuses this process, or if it is another user's; once the time
/// is over if it has not answered.
JobToken request_secret(const SecretRequestOptions& options);

}  // namespace lockstep
