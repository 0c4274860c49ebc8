#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/message_authentication.h"
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
  /// Connections that have not proved the token do not count as clients. If there are more of them, the
  /// oldest one is closed; all are closed after `handshake_timeout`.
  int max_strangers = 64;
  std::chrono::milliseconds handshake_timeout{10'000};
  /// Socket bound to `port` with which this process was started. The server takes ownership.
  std::optional<int> listening_socket;
};

/// Serves clients over encrypted TCP connections, with one thread per client. Requests of one client are
/// handled in order; requests of several clients run concurrently, each in one thread (ATen operators use no
/// others). A connection that does not follow the protocol is dropped and counted.
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

  int port() const { return listener_.port(); }

  /// Stops accepting requests and blocks until running handlers have returned. Their replies are still sent
  /// to clients that receive them within a second; then all connections are cut.
  void close();

  struct Counts {
    uint64_t requests = 0;
    uint64_t failed_requests = 0;   ///< requests for which the handler threw
    uint64_t wrong_tokens = 0;      ///< clients with a wrong token
    uint64_t foreign_messages = 0;  ///< connections dropped for what they sent, or did not send in time
    uint64_t excess_connections = 0;
  };
  Counts counts() const;
  /// Returns the number of clients that have proved the token.
  int num_connections() const;

 private:
  struct Connection {
    explicit Connection(int descriptor) : socket(StreamSocket(descriptor)) {}
    SecureSocket socket;
    std::atomic<bool> is_admitted = false;
    std::atomic<bool> is_over = false;
    std::thread thread;
  };

  void accept_clients();
  bool has_room() LOCKSTEP_REQUIRES(mutex_);
  bool admit(Connection& connection);
  void start(Connection& connection);
  void serve(Connection& connection);
  void serve_requests(SecureSocket& socket);
  void join_ended();
  void count(uint64_t Counts::*counter);

  const RpcServerOptions options_;
  const JobToken token_;
  const Handler handler_;
  TcpListener listener_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> connections_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Counts counts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace lockstep
