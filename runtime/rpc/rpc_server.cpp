#include "lockstep/runtime/rpc/rpc_server.h"

// C library headers, for their types.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/base/net/descriptor_limit.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/rpc/rpc_error.h"
#include "lockstep/runtime/rpc/rpc_format.h"

namespace lockstep {
namespace {

constexpr int kBacklog = 256;
// A client that takes no bytes for this long is gone.
constexpr std::chrono::minutes kReplyTimeout{1};
constexpr std::chrono::seconds kLastReplies{1};
// How often to look for connections that have ended.
constexpr std::chrono::milliseconds kReapInterval{1000};

}  // namespace

RpcServer::RpcServer(const RpcServerOptions& options, Handler handler)
    : options_(options),
      token_(JobToken::from_text(options.token)),
      handler_(std::move(handler)),
      listener_(options.listening_socket ? TcpListener::adopt(*options.listening_socket, options.port)
                                         : TcpListener(options.host, options.port)) {
  raise_descriptor_limit();
  if (listen(listener_.descriptor(), kBacklog) != 0)
    throw ClusterError(c10::str("[parameter server] expected a port to listen on, but got ",
                                endpoint_text(options.host, listener_.port()), ": ",
                                std::generic_category().message(errno)));
  // A connection may be gone when it is accepted.
  fcntl(listener_.descriptor(), F_SETFL, fcntl(listener_.descriptor(), F_GETFL) | O_NONBLOCK);
  accepting_ = std::thread([this] { accept_clients(); });
}

RpcServer::~RpcServer() {
  close();
}

void RpcServer::close() {
  std::vector<std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    connections.swap(connections_);
  }
  // Wakes the thread that waits for clients.
  shutdown(listener_.descriptor(), SHUT_RDWR);
  accepting_.join();
  for (const auto& connection : connections) connection->socket.shut_receiving();
  const auto deadline = StreamSocket::Clock::now() + kLastReplies;
  const auto are_over = [&] {
    return std::all_of(connections.begin(), connections.end(),
                       [](const auto& connection) { return connection->is_over.load(); });
  };
  while (!are_over() && StreamSocket::Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto& connection : connections) connection->socket.shut();
  for (const auto& connection : connections) connection->thread.join();
}

void RpcServer::accept_clients() {
  for (;;) {
    pollfd polled{listener_.descriptor(), POLLIN, 0};
    poll(&polled, 1, static_cast<int>(kReapInterval.count()));
    const int descriptor = accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    const int error = errno;
    join_ended();
    MutexLock lock(mutex_);
    if (is_closed_) {
      if (descriptor >= 0) StreamSocket{descriptor};
      return;
    }
    if (descriptor < 0) {
      lock.unlock();
      // Clients that have gone away are no reason to wait; a lack of descriptors or memory is.
      if (error != ECONNABORTED && error != EINTR && error != EAGAIN)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    auto connection = std::make_unique<Connection>(descriptor);
    if (!has_room()) {
      ++counts_.excess_connections;
      continue;
    }
    try {
      start(*connection);
    } catch (const std::system_error&) {
      ++counts_.excess_connections;  // the system has no thread left
      continue;
    }
    connections_.push_back(std::move(connection));
  }
}

/// Closes the oldest connection that has not proved the token if there are too many. Returns false if those
/// that were closed before have not ended yet.
bool RpcServer::has_room() {
  const auto max_strangers = static_cast<size_t>(options_.max_strangers);
  std::vector<Connection*> strangers;
  for (const auto& connection : connections_)
    if (!connection->is_admitted && !connection->is_over) strangers.push_back(connection.get());
  if (strangers.size() < max_strangers) return true;
  if (strangers.size() >= 2 * max_strangers) return false;
  strangers[strangers.size() - max_strangers]->socket.shut();
  ++counts_.excess_connections;
  return true;
}

void RpcServer::start(Connection& connection) {
  // Each request runs only on its connection's thread: a team of threads for each would outnumber the cores
  // and slow all of them down.
  connection.thread = start_thread(1, [this, &connection] { serve(connection); });
}

void RpcServer::join_ended() {
  std::vector<std::unique_ptr<Connection>> ended;
  {
    MutexLock lock(mutex_);
    const auto first =
        std::stable_partition(connections_.begin(), connections_.end(),
                              [](const auto& connection) { return !connection->is_over.load(); });
    std::move(first, connections_.end(), std::back_inserter(ended));
    connections_.erase(first, connections_.end());
  }
  for (const auto& connection : ended) connection->thread.join();
}

void RpcServer::count(uint64_t Counts::*counter) {
  MutexLock lock(mutex_);
  ++(counts_.*counter);
}

/// Runs the handshake. Returns false if there are too many clients.
bool RpcServer::admit(Connection& connection) {
  const auto deadline = StreamSocket::Clock::now() + options_.handshake_timeout;
  const auto is_for_us = [this](const ChannelIdentity& identity) {
    return identity.purpose == kRpcPurpose && identity.server == options_.task;
  };
  connection.socket.admit(token_, is_for_us, deadline, options_.grant);
  if (num_connections() >= options_.max_connections) {
    count(&Counts::excess_connections);
    return false;
  }
  connection.is_admitted = true;
  LittleEndianWriter limit;
  limit.write(options_.max_message_bytes);
  connection.socket.send({limit.bytes()}, deadline);
  return true;
}

void RpcServer::serve(Connection& connection) {
  try {
    if (admit(connection)) serve_requests(connection.socket);
  } catch (const HandshakeError& error) {
    if (error.reason() != HandshakeError::Reason::kGranted)
      count(error.reason() == HandshakeError::Reason::kToken ? &Counts::wrong_tokens
                                                             : &Counts::foreign_messages);
  } catch (const std::system_error&) {
    // A client has simply gone away.
    if (!connection.is_admitted) count(&Counts::foreign_messages);
  } catch (const std::exception&) {
    count(&Counts::foreign_messages);
  }
  connection.socket.shut();
  connection.is_over.store(true);
}

void RpcServer::serve_requests(SecureSocket& socket) {
  const ReceiveLimits limits{.max_bytes = options_.max_message_bytes};
  IncomingMessage incoming;
  while (receive_message(socket, limits, incoming)) {
    if (incoming.kind != RpcKind::kRequest) throw InvalidArgument("expected a request");
    std::optional<OutgoingMessage> reply;
    count(&Counts::requests);
    try {
      reply.emplace(RpcKind::kReply, handler_(std::exchange(incoming.message, {})));
    } catch (...) {
      count(&Counts::failed_requests);
      reply.emplace(RpcKind::kError, encode_error(std::current_exception()));
    }
    reply->send(socket, kReplyTimeout);
  }
}

RpcServer::Counts RpcServer::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

int RpcServer::num_connections() const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(connections_.begin(), connections_.end(), [](const auto& connection) {
    return connection->is_admitted.load() && !connection->is_over.load();
  }));
}

}  // namespace lockstep
