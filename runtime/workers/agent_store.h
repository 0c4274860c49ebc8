#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

/// The store of torchrun's agent, through which workers learn the address of worker 0's own store. Anyone who
/// reaches it can read and change it, so nothing else is done there, and the address carries a tag under the
/// job's token.
struct AgentStoreOptions {
  std::string host;  ///< of the agent
  int port = 0;
  std::chrono::milliseconds timeout{};  ///< for connecting, and then for the answer
  /// None: any address is taken, as that of a store which gives the token to this worker.
  std::optional<JobToken> token;
  int restart_count = 0;  ///< of the job; the agent's store may hold addresses of earlier starts
};

/// An address at which worker 0 listens.
struct StoreAddress {
  std::string host;
  int port = 0;
};

/// Publishes worker 0's address; needs a token. Blocks. Throws c10::Error if the agent does not answer within
/// the timeout.
void tell_agent(const AgentStoreOptions& options, const StoreAddress& address);

/// Returns the address that worker 0 has published. Blocks until it is there. Throws HandshakeError if worker
/// 0 has another token, or somebody else wrote the address; and otherwise like tell_agent().
StoreAddress ask_agent(const AgentStoreOptions& options);

}  // namespace lockstep
