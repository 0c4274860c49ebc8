#include "lockstep/runtime/exchange/link_hub.h"

// C library headers, for their types.
#include <fcntl.h>
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
#include "lockstep/runtime/exchange/link_handshake.h"
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
constexpr size_t kMaxGuests = 64;
// If others wait, a guest leaves after this time. A handshake takes one round trip.
constexpr std::chrono::milliseconds kSlow{250};
// Of links in a ChannelIdentity.
constexpr char kLinkPurpose[] = "exchange";
// After an error of the system that may pass.
constexpr std::chrono::milliseconds kPause{10};

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

/// Returns when a guest with this deadline has become slow.
LinkHub::Clock::time_point slow_from(LinkHub::Clock::time_point deadline) {
  return deadline - kHelloTimeout + kSlow;
}

bool is_of_same_user(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

}  // namespace

LinkHub::LinkHub(Options options)
    : options_(std::move(options)),
      listener_(options_.host, 0),
      interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (interruption_.get() < 0 || listen(listener_.descriptor(), SOMAXCONN) != 0)
    throw ClusterError("[join] cannot listen on " + options_.host + ": " +
                       std::system_category().message(errno));
  // A connection may be gone when it is accepted.
  fcntl(listener_.descriptor(), F_SETFL, fcntl(listener_.descriptor(), F_GETFL) | O_NONBLOCK);
  if (options_.uses_shared_memory) {
    local_name_ = "lockstep-" + JobToken::random().hex();
    local_listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const LocalAddress address(local_name_);
    if (bind(local_listener_.get(), address.get(), address.size) != 0 ||
        listen(local_listener_.get(), SOMAXCONN) != 0)
      local_name_.clear();  // TCP reaches everyone, too
  }
  thread_ = std::thread([this] { serve(); });
}

LinkHub::~LinkHub() {
  interrupt();
  thread_.join();
}

LinkAddress LinkHub::address() const {
  return {options_.host, listener_.port(), local_name_};
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

void LinkHub::serve() {
  accept_guests();
  // Ranks that connect from now on are refused, so that they do not wait for a greeting.
  close(listener_.release());
  local_listener_ = Descriptor();
  guests_.clear();
  MutexLock lock(mutex_);
  accepted_.clear();
}

void LinkHub::accept_guests() {
  while (!is_interrupted_) {
    const bool is_full = !has_room();
    std::vector<pollfd> polled{{interruption_.get(), POLLIN, 0}};
    polled.push_back({is_full ? -1 : listener_.descriptor(), POLLIN, 0});
    polled.push_back({is_full || local_name_.empty() ? -1 : local_listener_.get(), POLLIN, 0});
    auto until = is_full ? slow_from(guests_.front().deadline) : Clock::now() + kHelloTimeout;
    for (const auto& guest : guests_) {
      const short event = guest.session ? guest.session->handshake_event() : short{POLLIN};
      polled.push_back({guest.socket.get(), event, 0});
      until = std::min(until, guest.deadline);
    }
    if (poll(polled.data(), polled.size(), poll_timeout(until)) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(kPause);
      continue;
    }
    try {
      hear_guests(polled);
      if (polled[1].revents != 0) admit(listener_.descriptor(), /*is_local=*/false);
      if (polled[2].revents != 0 && has_room()) admit(local_listener_.get(), /*is_local=*/true);
    } catch (const std::exception&) {  // out of memory, for example; ranks that are not served time out
      std::this_thread::sleep_for(kPause);
    }
  }
}

/// `polled` has the guests from its fourth entry on.
void LinkHub::hear_guests(const std::vector<pollfd>& polled) {
  size_t i = 3;
  for (auto guest = guests_.begin(); guest != guests_.end(); ++i) {
    const bool is_late = polled[i].revents == 0 && Clock::now() >= guest->deadline;
    if (is_late) ++num_rejected_;
    const bool is_over = is_late || (polled[i].revents != 0 && is_heard_out(*guest));
    guest = is_over ? guests_.erase(guest) : std::next(guest);
  }
}

/// Returns whether another guest may come, perhaps in the place of the oldest one. A flood of strangers keeps
/// a rank waiting, but not out.
bool LinkHub::has_room() const {
  return guests_.size() < kMaxGuests || slow_from(guests_.front().deadline) <= Clock::now();
}

/// Greets a new guest, in the place of the oldest one if all places are taken.
void LinkHub::admit(int listener, bool is_local) {
  Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) {
    // Out of descriptors, for example: the connection stays in the queue.
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) std::this_thread::sleep_for(kPause);
    return;
  }
  if (guests_.size() >= kMaxGuests) {
    guests_.pop_front();
    ++num_rejected_;
  }
  Guest guest{.socket = std::move(socket),
              .session = {},
              .greeting = make_link_greeting(),
              .hello = {},
              .deadline = Clock::now() + kHelloTimeout,
              .is_local = is_local};
  if (options_.encrypts && !is_local) {
    const auto is_for_us = [this](const ChannelIdentity& identity) {
      return identity.purpose == kLinkPurpose && identity.server == task_of(options_.rank) &&
             identity.generation == options_.generation && rank_of(identity.client).has_value();
    };
    guest.session = std::make_unique<TlsSession>(guest.socket.get(), options_.token, is_for_us);
    guests_.push_back(std::move(guest));
    return;
  }
  // A new socket has room for the greeting.
  const bool is_welcome = (!is_local || is_of_same_user(guest.socket.get())) &&
                          send(guest.socket.get(), guest.greeting.data(), guest.greeting.size(),
                               MSG_NOSIGNAL) == static_cast<ssize_t>(guest.greeting.size());
  if (is_welcome) {
    guests_.push_back(std::move(guest));
  } else {
    ++num_rejected_;
  }
}

/// Continues the handshake of an encrypted connection. Returns whether the guest can be forgotten.
bool LinkHub::has_shaken_hands(Guest& guest) {
  try {
    if (!guest.session->shake_hands()) return false;
  } catch (const std::exception&) {
    ++num_rejected_;
    return true;
  }
  const ChannelIdentity identity = guest.session->identity();
  accept(*rank_of(identity.client), static_cast<uint32_t>(identity.number),
         {.socket = std::move(guest.socket), .session = std::move(guest.session)});
  return true;
}

void LinkHub::accept(int peer, uint32_t channel, Accepted accepted) {
  MutexLock lock(mutex_);
  accepted_.insert_or_assign({peer, channel}, std::move(accepted));
  changed_.notify_all();
}

/// Receives more of a guest's hello. Returns whether the guest can be forgotten.
bool LinkHub::is_heard_out(Guest& guest) {
  if (guest.session) return has_shaken_hands(guest);
  std::array<uint8_t, kLinkHelloBytes> bytes{};
  const ssize_t count =
      recv(guest.socket.get(), bytes.data(), kLinkHelloBytes - guest.hello.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count > 0) guest.hello.insert(guest.hello.end(), bytes.begin(), bytes.begin() + count);
  if (count > 0 && guest.hello.size() < kLinkHelloBytes) return false;
  const auto hello = count > 0 ? read_link_hello(options_.token, guest.greeting, guest.hello) : std::nullopt;
  const bool is_accepted = hello && hello->generation == options_.generation &&
                           hello->to == static_cast<uint32_t>(options_.rank) &&
                           (guest.is_local || !hello->has_shared_memory);
  const auto answer = make_link_answer(options_.token, guest.greeting, guest.hello);
  if (!is_accepted || send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL) !=
                          static_cast<ssize_t>(answer.size())) {
    ++num_rejected_;
    return true;
  }
  accept(static_cast<int>(hello->from), hello->channel,
         {.socket = std::move(guest.socket), .has_shared_memory = hello->has_shared_memory});
  return true;
}

void LinkHub::interrupt() noexcept {
  is_interrupted_ = true;
  eventfd_write(interruption_.get(), 1);
  MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace lockstep
