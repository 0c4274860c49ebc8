#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/connection_acceptor.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

struct RpcServerOptions {
  std::string host = "127.0.0.1";  ///< the only address to listen on
  int port = 0;                    ///< 0: chosen by the system
  /// The job's secret. Required.
  std::string token;
  /// Gives the secret to those that may get it; nullptr if they know it from elsewhere.
  std::shared_ptr<const SecretGrant> grant{};
  std::string
      task;  ///< of this process in the job, such as "ps 0"; only clients that want to reach it are served
  uint64_t max_message_bytes = uint64_t{4} << 30;
  /// Clients beyond this number are refused.
  int max_connections = 1024;
  /// For connections that have not proved the token, which do not count as clients.
  /// Workers that connect must not wait for silent strangers until they count as lost.
  PendingConnectionLimits pending{.silent_after = std::chrono::milliseconds(5)};
  /// Socket bound to `port` with which this process was started. The server takes ownership.
  std::optional<int> listening_socket;
};

/// Serves clients over encrypted TCP connections, with one thread per client, and one that admits them.
/// Requests of one client are handled in order; requests of several clients run concurrently, each in one
/// thread (ATen operators use no others). A connection that does not follow the protocol is dropped and
/// counted.
class RpcServer {
 public:
  /// Answers a request. If it throws, the client receives the error instead. Called by several threads at
  /// once. It may block, which delays only that client, but must return soon after close() was called.
  using Handler = std::function<RpcMessage(RpcMessage)>;

  /// Starts listening. Throws ClusterError naming host:port, for example if the port is in use, and
  /// InvalidArgument if the token is empty.
  RpcServer(const RpcServerOptions& options, Handler handler);
  /// Calls close().
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const { return port_; }

  /// Stops accepting requests and blocks until running handlers have returned. Their replies are still sent
  /// to clients that receive them within a second; then all connections are cut.
  void close();

  struct Counts {
    uint64_t requests = 0;
    uint64_t failed_requests = 0;     ///< requests for which the handler threw
    uint64_t wrong_tokens = 0;        ///< clients with a wrong token
    uint64_t foreign_messages = 0;    ///< connections dropped for what they sent, or did not send in time
    uint64_t excess_connections = 0;  ///< clients beyond `max_connections`, or for which there was no thread
  };
  Counts counts() const;
  /// Returns the number of clients that have proved the token.
  int num_connections() const;

 private:
  struct Connection {
    explicit Connection(AdmittedConnection admitted)
        : socket(StreamSocket(admitted.socket.release()), std::move(admitted.session)) {}
    SecureSocket socket;
    std::atomic<bool> is_over = false;
    std::thread thread;
  };
  using Connections = std::vector<std::unique_ptr<Connection>>;

  void admit(AdmittedConnection admitted);
  void serve(Connection& connection);
  void serve_requests(SecureSocket& socket);
  void join_ended();
  void count(uint64_t Counts::*counter);

  const RpcServerOptions options_;
  const Handler handler_;
  int port_ = 0;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  Connections connections_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Counts counts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread joining_;  // threads of connections that have ended
  std::optional<ConnectionAcceptor> acceptor_;
};

}  // namespace lockstep
