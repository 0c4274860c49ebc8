#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/pending_connections.h"
#include "lockstep/runtime/base/net/secret_grant.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

/// Accepts a server's connections on a thread of its own, and keeps them until their other ends have proved
/// that they know the job's token. See PendingConnections for the rule. The server's own threads see clients
/// only, so that strangers cost them no time.
class ConnectionAcceptor {
 public:
  /// For listen(): connections that find no place wait in the system's queue, which a flood fills.
  static constexpr int kBacklog = 4096;

  /// Begins the handshake of a connection, which does not block. Called by the acceptor's thread. Throws if
  /// the connection is to be rejected at once.
  using Begin = std::function<std::unique_ptr<PendingConnection>(Descriptor socket)>;
  struct Listener {
    Descriptor socket;  ///< on which listen() was called
    Begin begin;
  };

  /// Starts to accept. The listeners share the places.
  ConnectionAcceptor(std::vector<Listener> listeners, const PendingConnectionLimits& limits);
  /// Calls stop().
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  /// Lets the thread close the listeners and all pending connections, and end. Does not block or throw.
  void interrupt() noexcept;
  /// Calls interrupt(), and blocks until the thread has ended. Only one thread may call it.
  void stop();

  /// See PendingConnections.
  uint64_t num_rejected() const { return pending_.num_rejected(); }
  uint64_t num_wrong_tokens() const { return pending_.num_wrong_tokens(); }

 private:
  void serve();
  void serve_once();
  void accept(const Listener& listener);

  std::vector<Listener> listeners_;  // used only by the thread, as the connections
  PendingConnections pending_;
  const Descriptor interruption_;  // an eventfd
  std::atomic<bool> is_interrupted_{false};
  std::thread thread_;
};

/// A connection whose other end has proved that it knows the job's token.
struct AdmittedConnection {
  Descriptor socket;
  std::unique_ptr<TlsSession> session;
};

/// Which TLS connections a server admits.
struct TlsAdmissionOptions {
  JobToken token;
  ChannelAdmission admission;
  /// Gives the token to those that may get it; nullptr if they know it from elsewhere.
  std::shared_ptr<const SecretGrant> grant{};
};

/// Returns how TLS connections to a server begin. The acceptor's thread passes those that have proved the
/// token to `admitted`. If that throws, the connection is closed.
ConnectionAcceptor::Begin admit_by_tls(TlsAdmissionOptions options,
                                       std::function<void(AdmittedConnection)> admitted);

}  // namespace lockstep
