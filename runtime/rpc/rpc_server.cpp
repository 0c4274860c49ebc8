#include "lockstep/runtime/rpc/rpc_server.h"

// C library headers, for their types.
#include <sys/socket.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cerrno>
#include <functional>
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

// A client that takes no bytes for this long is gone.
constexpr std::chrono::minutes kReplyTimeout{1};
constexpr std::chrono::seconds kLastReplies{1};

}  // namespace

RpcServer::RpcServer(const RpcServerOptions& options, Handler handler)
    : options_(options), handler_(std::move(handler)) {
  const auto token = JobToken::from_text(options.token);
  auto listener = options.listening_socket ? TcpListener::adopt(*options.listening_socket, options.port)
                                           : TcpListener(options.host, options.port);
  port_ = listener.port();
  raise_descriptor_limit();
  if (listen(listener.descriptor(), ConnectionAcceptor::kBacklog) != 0)
    throw ClusterError(c10::str("[parameter server] expected a port to listen on, but got ",
                                endpoint_text(options.host, port_), ": ",
                                std::generic_category().message(errno)));
  const auto is_for_us = [task = options.task](const ChannelIdentity& identity) {
    return identity.purpose == kRpcPurpose && identity.server == task;
  };
  std::vector<ConnectionAcceptor::Listener> listeners;
  listeners.push_back(
      {.socket = Descriptor(listener.release()),
       .begin = admit_by_tls({.token = token, .admission = is_for_us, .grant = options.grant},
                             [this](AdmittedConnection admitted) { admit(std::move(admitted)); })});
  acceptor_.emplace(std::move(listeners), options.pending);
  joining_ = std::thread([this] { join_ended(); });
}

RpcServer::~RpcServer() {
  close();
}

void RpcServer::close() {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    changed_.notify_all();
  }
  acceptor_->stop();
  joining_.join();
  Connections connections;
  {
    MutexLock lock(mutex_);
    connections.swap(connections_);
  }
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

/// Called by the acceptor's thread.
void RpcServer::admit(AdmittedConnection admitted) {
  auto connection = std::make_unique<Connection>(std::move(admitted));
  const bool has_place = num_connections() < options_.max_connections;
  MutexLock lock(mutex_);
  if (!has_place) {
    ++counts_.excess_connections;
    return;
  }
  connections_.push_back(std::move(connection));
  Connection& added = *connections_.back();
  try {
    // Each request runs only on its connection's thread: a team of threads for each would outnumber the cores
    // and slow all of them down.
    added.thread = start_thread(1, [this, &added] { serve(added); });
  } catch (const std::exception&) {
    ++counts_.excess_connections;  // the system has no thread or memory left
    connections_.pop_back();
  }
}

/// Joins the threads of connections as they end, until the server is closed.
void RpcServer::join_ended() {
  for (;;) {
    Connections ended;
    {
      MutexLock lock(mutex_);
      const auto is_over = [](const auto& connection) { return connection->is_over.load(); };
      while (!is_closed_ && std::none_of(connections_.begin(), connections_.end(), is_over))
        changed_.wait(mutex_);
      if (is_closed_) return;
      const auto first =
          std::stable_partition(connections_.begin(), connections_.end(), std::not_fn(is_over));
      std::move(first, connections_.end(), std::back_inserter(ended));
      connections_.erase(first, connections_.end());
    }
    for (const auto& connection : ended) connection->thread.join();
  }
}

void RpcServer::count(uint64_t Counts::*counter) {
  MutexLock lock(mutex_);
  ++(counts_.*counter);
}

void RpcServer::serve(Connection& connection) {
  try {
    LittleEndianWriter limit;
    limit.write(options_.max_message_bytes);
    connection.socket.send({limit.bytes()}, StreamSocket::Clock::now() + kReplyTimeout);
    serve_requests(connection.socket);
  } catch (const std::system_error&) {  // a client has simply gone away
  } catch (const std::exception&) {
    count(&Counts::foreign_messages);
  }
  connection.socket.shut();
  MutexLock lock(mutex_);
  connection.is_over.store(true);
  changed_.notify_all();
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
  Counts counts = counts_;
  const uint64_t num_wrong_tokens = acceptor_->num_wrong_tokens();  // not after the others, which include it
  counts.wrong_tokens += num_wrong_tokens;
  counts.foreign_messages += acceptor_->num_rejected() - num_wrong_tokens;
  return counts;
}

int RpcServer::num_connections() const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                        [](const auto& connection) { return !connection->is_over.load(); }));
}

}  // namespace lockstep
