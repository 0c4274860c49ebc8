#include "lockstep/runtime/exchange/link_hub.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/socket_error.h"
#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/exchange/link_handshake.h"
#include "lockstep/runtime/exchange/pending_link.h"
#include "lockstep/runtime/exchange/secure_link.h"
#include "lockstep/runtime/exchange/shared_memory_link.h"
#include "lockstep/runtime/exchange/socket_link.h"

namespace lockstep {
namespace {

// Limit for a host that does not answer.
constexpr std::chrono::seconds kConnectTimeout{30};
// How often to look for an interrupt meanwhile.
constexpr std::chrono::seconds kConnectSlice{3};
// A connection that has not said hello by then is dropped.
constexpr std::chrono::seconds kHelloTimeout{5};
// Of links in a ChannelIdentity.
constexpr char kLinkPurpose[] = "exchange";

/// The address of a Unix socket in the abstract namespace, which has no file.
struct LocalAddress {
  explicit LocalAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    const size_t count = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), count);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

constexpr std::string_view kRank = "rank ";

std::string task_of(int rank) {
  return std::string(kRank) + std::to_string(rank);
}

/// Returns the rank of task_of(); nullopt for other texts.
std::optional<int> rank_of(std::string_view task) {
  int rank = 0;
  if (!task.starts_with(kRank)) return std::nullopt;
  const auto digits = task.substr(kRank.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank < 0) return std::nullopt;
  return rank;
}

/// Returns no descriptor if there is no such socket on this machine.
Descriptor connect_locally(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const LocalAddress address(name);
  if (socket.get() >= 0 && ::connect(socket.get(), address.get(), address.size) != 0) return Descriptor();
  return socket;
}

}  // namespace

LinkHub::LinkHub(Options options)
    : options_(std::move(options)), interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TcpListener listener(options_.host, 0);
  if (interruption_.get() < 0 || listen(listener.descriptor(), ConnectionAcceptor::kBacklog) != 0)
    throw ClusterError("[join] cannot listen on " + options_.host + ": " +
                       std::system_category().message(errno));
  address_ = {.host = options_.host, .port = listener.port()};
  std::vector<ConnectionAcceptor::Listener> listeners;
  listeners.push_back({.socket = Descriptor(listener.release()),
                       .begin = options_.encrypts ? begin_encrypted() : begin_plain(/*is_local=*/false)});
  if (options_.uses_shared_memory) {
    Descriptor local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.local_name = "lockstep-" + JobToken::random().hex();
    const LocalAddress address(address_.local_name);
    if (bind(local.get(), address.get(), address.size) == 0 &&
        listen(local.get(), ConnectionAcceptor::kBacklog) == 0) {
      listeners.push_back({.socket = std::move(local), .begin = begin_plain(/*is_local=*/true)});
    } else {
      address_.local_name.clear();  // TCP reaches everyone, too
    }
  }
  acceptor_.emplace(std::move(listeners), PendingConnectionLimits{.timeout = kHelloTimeout});
}

LinkHub::~LinkHub() {
  interrupt();
}

/// Returns how connections begin that are encrypted.
ConnectionAcceptor::Begin LinkHub::begin_encrypted() {
  const auto is_for_us = [this](const ChannelIdentity& identity) {
    return identity.purpose == kLinkPurpose && identity.server == task_of(options_.rank) &&
           identity.generation == options_.generation && rank_of(identity.client).has_value();
  };
  return admit_by_tls({.token = options_.token, .admission = is_for_us}, [this](AdmittedConnection admitted) {
    const ChannelIdentity identity = admitted.session->identity();
    accept(*rank_of(identity.client), static_cast<uint32_t>(identity.number),
           {.socket = std::move(admitted.socket), .session = std::move(admitted.session)});
  });
}

/// Returns how other connections begin.
ConnectionAcceptor::Begin LinkHub::begin_plain(bool is_local) {
  const PendingLinkOptions options{.token = options_.token,
                                   .rank = static_cast<uint32_t>(options_.rank),
                                   .generation = options_.generation,
                                   .is_local = is_local};
  const auto accept_link = [this](const LinkHello& hello, Descriptor socket) {
    accept(static_cast<int>(hello.from), hello.channel,
           {.socket = std::move(socket), .has_shared_memory = hello.has_shared_memory});
  };
  return [options, accept_link](Descriptor socket) {
    return std::make_unique<PendingLink>(std::move(socket), options, accept_link);
  };
}

void LinkHub::set_peers(std::vector<LinkAddress> peers) {
  MutexLock lock(mutex_);
  peers_ = std::move(peers);
}

std::unique_ptr<ExchangeLink> LinkHub::connect(int peer, uint32_t channel, Clock::time_point deadline) {
  return options_.rank > peer ? call(peer, channel, deadline) : await(peer, channel, deadline);
}

std::unique_ptr<ExchangeLink> LinkHub::call(int peer, uint32_t channel, Clock::time_point deadline) {
  LinkAddress address;
  {
    MutexLock lock(mutex_);
    address = peers_.at(static_cast<size_t>(peer));
  }
  std::array<uint8_t, kLinkGreetingBytes> greeting{};
  const auto is_greeted = [&](StreamSocket& by) {
    wait_for_peer(by.descriptor(), POLLIN, deadline);
    return by.receive({greeting}, deadline);
  };
  std::optional<SharedMemoryLink::Memory> memory;
  std::optional<StreamSocket> socket;
  if (options_.uses_shared_memory && !address.local_name.empty()) {
    Descriptor local = connect_locally(address.local_name);
    if (local.get() >= 0) socket.emplace(local.release());
    // The peer turns away processes of other users, which it can still reach over TCP.
    if (socket && !is_greeted(*socket)) socket.reset();
    if (socket) memory = allocate_for(peer);
  }
  if (!socket) {
    socket.emplace(connect_by_tcp(address, deadline));
    if (options_.encrypts) return call_encrypted(std::move(*socket), peer, channel, deadline);
    if (!is_greeted(*socket)) throw_socket_error(std::errc::connection_reset, "connect");
  }
  const auto hello = make_link_hello(options_.token,
                                     {.from = static_cast<uint32_t>(options_.rank),
                                      .to = static_cast<uint32_t>(peer),
                                      .channel = channel,
                                      .generation = options_.generation,
                                      .has_shared_memory = memory.has_value()},
                                     greeting);
  socket->send({hello}, deadline);
  JobToken::Tag answer{};
  wait_for_peer(socket->descriptor(), POLLIN, deadline);
  if (!socket->receive({answer}, deadline) || answer != make_link_answer(options_.token, greeting, hello))
    throw_socket_error(std::errc::permission_denied, "connect");
  if (memory) return SharedMemoryLink::share(socket->release(), std::move(*memory));
  return std::make_unique<SocketLink>(socket->release());
}

std::unique_ptr<ExchangeLink> LinkHub::call_encrypted(StreamSocket socket, int peer, uint32_t channel,
                                                      Clock::time_point deadline) const {
  auto session = std::make_unique<TlsSession>(socket.descriptor(), options_.token,
                                              ChannelIdentity{.purpose = kLinkPurpose,
                                                              .client = task_of(options_.rank),
                                                              .server = task_of(peer),
                                                              .number = channel,
                                                              .generation = options_.generation});
  try {
    while (!session->shake_hands()) wait_for_peer(socket.descriptor(), session->handshake_event(), deadline);
  } catch (const HandshakeError&) {
    throw_socket_error(std::errc::permission_denied, "connect");
  }
  return std::make_unique<SecureLink>(Descriptor(socket.release()), std::move(session));
}

/// Returns none if the system has none left.
std::optional<SharedMemoryLink::Memory> LinkHub::allocate_for(int peer) const {
  try {
    return SharedMemoryLink::allocate(options_.shared_memory_bytes);
  } catch (const std::system_error& error) {
    if (options_.log)
      options_.log("no shared memory for rank " + std::to_string(peer) + " (" + error.what() +
                   "), so values go through a socket");
    return std::nullopt;
  }
}

StreamSocket LinkHub::connect_by_tcp(const LinkAddress& address, Clock::time_point deadline) const {
  const auto last = std::min(deadline, Clock::now() + kConnectTimeout);
  for (;;) {
    if (is_interrupted_) throw_socket_error(std::errc::operation_canceled, "connect");
    try {
      return StreamSocket::connect(address.host, address.port, std::min(last, Clock::now() + kConnectSlice));
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::timed_out || Clock::now() >= last) throw;
    }
  }
}

/// Blocks until the event has come or the peer has closed the connection. Its messages are short and arrive
/// at once.
void LinkHub::wait_for_peer(int socket, short event, Clock::time_point deadline) const {
  for (;;) {
    std::array<pollfd, 2> polled{{{socket, event, 0}, {interruption_.get(), POLLIN, 0}}};
    poll(polled.data(), polled.size(), poll_timeout(deadline));
    if (is_interrupted_) throw_socket_error(std::errc::operation_canceled, "connect");
    if (polled[0].revents != 0) return;
    if (Clock::now() >= deadline) throw_socket_error(std::errc::timed_out, "connect");
  }
}

std::unique_ptr<ExchangeLink> LinkHub::await(int peer, uint32_t channel, Clock::time_point deadline) {
  Accepted accepted;
  {
    MutexLock lock(mutex_);
    while (!is_interrupted_ && !accepted_.contains({peer, channel})) {
      if (Clock::now() >= deadline) throw_socket_error(std::errc::timed_out, "connect");
      changed_.wait_until(mutex_, deadline);
    }
    if (is_interrupted_) throw_socket_error(std::errc::operation_canceled, "connect");
    accepted = std::move(accepted_.extract({peer, channel}).mapped());
  }
  if (accepted.session)
    return std::make_unique<SecureLink>(std::move(accepted.socket), std::move(accepted.session));
  if (!accepted.has_shared_memory) return std::make_unique<SocketLink>(accepted.socket.release());
  wait_for_peer(accepted.socket.get(), POLLIN, deadline);
  return SharedMemoryLink::receive_from(accepted.socket.release(), deadline);
}

/// Called by the acceptor's thread.
void LinkHub::accept(int peer, uint32_t channel, Accepted accepted) {
  MutexLock lock(mutex_);
  if (is_interrupted_) return;
  accepted_.insert_or_assign({peer, channel}, std::move(accepted));
  changed_.notify_all();
}

void LinkHub::interrupt() noexcept {
  is_interrupted_ = true;
  eventfd_write(interruption_.get(), 1);
  acceptor_->interrupt();
  MutexLock lock(mutex_);
  accepted_.clear();
  changed_.notify_all();
}

}  // namespace lockstep
