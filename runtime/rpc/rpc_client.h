#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

struct RpcClientOptions {
  std::string name;  ///< name in errors: "server 1"
  std::string host;
  int port = 0;
  std::string token;        ///< the job's secret; required
  std::string task;         ///< this process's task in the job, such as "worker 1"
  std::string server_task;  ///< the server's; see RpcServerOptions
  /// How long to wait for a server that is not listening yet or does not answer.
  std::chrono::milliseconds connect_timeout{60'000};
  /// How long to wait for a reply, plus one second per megabyte.
  std::chrono::milliseconds call_timeout{60'000};
};

/// An encrypted connection to a parameter server. Not thread-safe.
class RpcClient {
 public:
  /// Connects, and blocks until the server has accepted. Throws ClusterError naming the server and its
  /// address: at once if the token differs or the other end is another process; as PeerLost if nobody has
  /// answered in time. Throws InvalidArgument if the token is empty.
  explicit RpcClient(const RpcClientOptions& options);

  /// Sends a request and returns its reply. Blocks. Throws PeerLost naming the server if the connection is
  /// lost or no reply comes in time, after which every request throws PeerLost; InvalidArgument if the
  /// request is larger than the server accepts; and what the handler threw, see throw_error().
  RpcMessage call(RpcMessage request);

  /// The two halves of call(). Several requests can be in flight; the server answers them in order, and works
  /// on one while the next one and the last reply travel. Replies that arrive while a request is sent are
  /// kept, so that the two ends cannot deadlock.
  void send(RpcMessage request);
  /// Returns the reply to the oldest unanswered request. Throws InvalidArgument if there is none.
  RpcMessage receive();

  /// Returns whether the connection is lost, so that every request throws. A PeerLost without that is the
  /// handler's, about another process.
  bool is_lost() const { return is_lost_; }

  /// Returns the server's name, such as "server 1 (node7:2222)".
  const std::string& name() const { return name_; }

 private:
  SecureSocket connect(const RpcClientOptions& options);
  [[noreturn]] void fail(const std::string& what);
  template <typename Work>
  auto attempt(const Work& work);
  IncomingMessage next_reply();

  const std::string name_;
  const std::chrono::milliseconds call_timeout_;
  uint64_t max_message_bytes_ = 0;
  bool is_lost_ = false;
  int64_t num_outstanding_ = 0;           // requests whose reply the caller has not received
  std::deque<IncomingMessage> received_;  // replies to these that have arrived
  SecureSocket socket_;
};

}  // namespace lockstep
