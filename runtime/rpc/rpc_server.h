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
  std::string host = "127.0.0.1";  ///< the address that it listens on, and no other
  int port = 0;                    ///< 0: the system chooses
  /// The job's secret. Empty: none, so that whoever reaches the port is served.
  std::string token;
  uint64_t max_message_bytes = uint64_t{4} << 30;
  /// Those beyond are closed at once, as are those that have not shown the token within the timeout.
  int max_connections = 1024;
  std::chrono::milliseconds handshake_timeout{10'000};
  /// A socket bound to `port`, which this process was started with; it belongs to the server from now on.
  std::optional<int> listening_socket;
};

/// Serves clients over TCP, a thread each: a client's requests are handled one after another, in its order,
/// those of several at the same time, each by one thread (ATen's operators use no others). What comes from a
/// client that is none is dropped and counted, with its connection.
class RpcServer {
 public:
  /// Answers a request; what it throws goes to the client instead. Called by several threads at once. It may
  /// block, which holds up that client alone, but must return soon once close() was called.
  using Handler = std::function<RpcMessage(RpcMessage)>;

  /// Listens from now on. Throws ClusterError naming host:port, such as where the port is in use.
  RpcServer(const RpcServerOptions& options, Handler handler);
  /// As close().
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const { return listener_.port(); }

  /// Takes no requests any more, and blocks until the handlers that run have returned. Their replies still go
  /// out, to clients that take them within a second; then all connections are cut.
  void close();

  struct Counts {
    uint64_t requests = 0;
    uint64_t failed_requests = 0;   ///< those that the handler threw for
    uint64_t wrong_tokens = 0;      ///< clients
    uint64_t foreign_messages = 0;  ///< connections dropped for what they said, or did not say in time
    uint64_t excess_connections = 0;
  };
  Counts counts() const;
  int num_connections() const;

 private:
  struct Connection {
    explicit Connection(int descriptor) : socket(descriptor) {}
    StreamSocket socket;
    std::atomic<bool> is_over = false;
    std::thread thread;
  };

  void accept_clients();
  void start(Connection& connection);
  void serve(Connection& connection);
  void serve_requests(StreamSocket& socket);
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
