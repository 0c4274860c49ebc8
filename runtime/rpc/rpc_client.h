#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

struct RpcClientOptions {
  std::string name;  ///< for errors: "server 1"
  std::string host;
  int port = 0;
  std::string token;  ///< see RpcServerOptions
  /// How long a server is waited for that does not listen yet, or does not answer.
  std::chrono::milliseconds connect_timeout{60'000};
  /// How long a reply is waited for, and a second more for each megabyte.
  std::chrono::milliseconds call_timeout{60'000};
};

/// A connection to a parameter server. For one thread at a time.
class RpcClient {
 public:
  /// Blocks until the server has taken it. Throws ClusterError naming the server and its address: at once for
  /// another token and for what is no parameter server, and PeerLost where nobody has answered in time.
  explicit RpcClient(const RpcClientOptions& options);

  /// The reply to a request. Blocks. Throws PeerLost naming the server where the connection is lost or no
  /// reply comes in time, after which this client throws PeerLost for every request; InvalidArgument for a
  /// request that is larger than the server takes; and what the handler threw, see throw_error().
  RpcMessage call(RpcMessage request);

  /// The two halves of call(). Several requests can be on their way, which the server answers in their order:
  /// it works on one while the next comes, and while the last one's reply goes. Replies that come while a
  /// request is sent are kept, so that neither end waits for the other for ever.
  void send(RpcMessage request);
  /// The reply to the first request that has none yet. Throws InvalidArgument where there is none.
  RpcMessage receive();

  /// Such as "server 1 (node7:2222)".
  const std::string& name() const { return name_; }

 private:
  StreamSocket connect(const RpcClientOptions& options);
  [[noreturn]] void fail(const std::string& what);
  template <typename Work>
  auto attempt(const Work& work);
  IncomingMessage next_reply();

  const std::string name_;
  const std::chrono::milliseconds call_timeout_;
  uint64_t max_message_bytes_ = 0;
  bool is_lost_ = false;
  int64_t num_outstanding_ = 0;           // requests whose reply was not received by the caller
  std::deque<IncomingMessage> received_;  // of those, the replies that are here
  StreamSocket socket_;
};

}  // namespace lockstep
