#include "lockstep/runtime/store/store_server.h"

// C library headers, for their types.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {
namespace {

// Numbers of the descriptors that are no connections.
constexpr uint64_t kInterruption = 0;
constexpr uint64_t kListener = 1;
constexpr int kBacklog = 4096;
// How often to look for strangers whose time is over, and for room for others.
constexpr std::chrono::milliseconds kSweep{500};
constexpr std::chrono::milliseconds kFullSweep{10};
// If others wait, a stranger leaves after this time. A handshake takes one round trip.
constexpr std::chrono::milliseconds kSlow{250};
constexpr size_t kReceiveBytes = size_t{64} * 1024;
// If a client takes no answers, nothing more is read from it, and then the connection is closed.
constexpr size_t kMaxUnsentBytes = kMaxStoreMessageBytes;
constexpr size_t kMostUnsentBytes = 10 * kMaxUnsentBytes;
// Bytes that have been sent are kept up to this size, so that they are not moved for every answer.
constexpr size_t kMaxSentBytes = size_t{1} << 20;

}  // namespace

StoreServer::StoreServer(TcpListener listener, const StoreServerOptions& options)
    : options_(options),
      listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options.limits, [this](uint64_t client, const StoreReply& reply) { answer(client, reply); }) {
  strangers_.reserve(static_cast<size_t>(options_.max_strangers) + 1);
  // A connection may be gone when it is accepted.
  fcntl(listener_.descriptor(), F_SETFL, fcntl(listener_.descriptor(), F_GETFL) | O_NONBLOCK);
  const auto add = [this](int descriptor, uint64_t id) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  };
  if (listen(listener_.descriptor(), kBacklog) != 0 || !add(interruption_.get(), kInterruption) ||
      !add(listener_.descriptor(), kListener))
    throw ClusterError("[store] cannot listen on port " + std::to_string(listener_.port()) + ": " +
                       std::system_category().message(errno));
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  is_closing_ = true;
  eventfd_write(interruption_.get(), 1);
  thread_.join();
}

int StoreServer::num_clients() const {
  MutexLock lock(mutex_);
  return num_clients_;
}

void StoreServer::wait_for_departures(std::chrono::milliseconds limit) {
  const auto deadline = deadline_after(limit);
  MutexLock lock(mutex_);
  while (num_clients_ > 1 && changed_.wait_until(mutex_, deadline)) continue;
}

void StoreServer::serve() {
  std::array<epoll_event, 64> events{};
  while (!is_closing_) {
    const auto wait = is_full_ ? kFullSweep : kSweep;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(wait.count()));
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      try {
        if (id > kListener) handle_events(id);
      } catch (const std::exception&) {  // out of memory, for example
        remove(id);
      }
      send_answers();
    }
    end_strangers(Clock::now() - options_.handshake_timeout, strangers_.size());
    try {
      accept_strangers();
    } catch (const std::exception&) {  // likewise; the others wait
      is_full_ = true;
      watch(listener_.descriptor(), kListener, 0);
    }
  }
  connections_.clear();
  MutexLock lock(mutex_);
  num_clients_ = 0;
  changed_.notify_all();
}

/// Accepts connections while there is room. A flood of strangers keeps a client waiting, but not out.
void StoreServer::accept_strangers() {
  const bool was_full = std::exchange(is_full_, false);
  while (!is_full_) {
    const auto max_strangers = static_cast<size_t>(options_.max_strangers);
    if (strangers_.size() >= max_strangers) end_strangers(Clock::now() - kSlow, 1);
    is_full_ = strangers_.size() >= max_strangers;
    if (is_full_) break;
    Descriptor socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      add_stranger(std::move(socket));
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    // If descriptors have run out, for example, the connection stays in the queue.
    is_full_ = errno != EAGAIN;
    break;
  }
  // The listener stays ready as long as connections wait.
  if (is_full_ != was_full) watch(listener_.descriptor(), kListener, is_full_ ? 0 : EPOLLIN);
}

void StoreServer::add_stranger(Descriptor socket) {
  set_up_connection(socket.get());
  const auto is_of_this_start = [generation = options_.generation](const ChannelIdentity& identity) {
    return identity.purpose == kStorePurpose && identity.server == kStorePurpose &&
           identity.generation == generation;
  };
  auto session = std::make_unique<TlsSession>(socket.get(), options_.token, is_of_this_start, options_.grant);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = next_id_}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) return;
  connections_.emplace(next_id_, Connection{.socket = std::move(socket),
                                            .session = std::move(session),
                                            .begin = Clock::now(),
                                            .events = EPOLLIN});
  strangers_.push_back(next_id_++);
}

/// Closes up to `max_count` connections that have not proved the token since then.
void StoreServer::end_strangers(Clock::time_point begun_before, size_t max_count) {
  // The oldest come first.
  while (max_count-- > 0 && !strangers_.empty() && connections_.at(strangers_.front()).begin < begun_before)
    reject(strangers_.front());
}

void StoreServer::handle_events(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // closed since the event came
  Connection& connection = found->second;
  try {
    if (!connection.is_admitted && !shake_hands(id, connection)) {
      const auto event = static_cast<uint32_t>(connection.session->handshake_event());
      if (std::exchange(connection.events, event) != event) watch(connection.socket.get(), id, event);
      return;
    }
    flush(connection);
    const bool is_open = receive(id, connection);
    answered_.push_back(id);
    if (!is_open) remove(id);
  } catch (const HandshakeError& error) {
    if (error.reason() == HandshakeError::Reason::kToken) ++num_wrong_tokens_;
    error.reason() == HandshakeError::Reason::kGranted ? remove(id) : reject(id);
  } catch (const InvalidArgument&) {  // not a message
    reject(id);
  } catch (const std::system_error&) {  // the connection is gone
    connection.is_admitted ? remove(id) : reject(id);
  }
}

/// Returns whether the client has proved the token.
bool StoreServer::shake_hands(uint64_t id, Connection& connection) {
  if (!connection.session->shake_hands()) return false;
  connection.is_admitted = true;
  std::erase(strangers_, id);
  answer(id, {.id = kStoreWelcome});
  MutexLock lock(mutex_);
  ++num_clients_;
  return true;
}

/// Handles the messages that have arrived. Returns false if the client has closed the connection.
bool StoreServer::receive(uint64_t id, Connection& connection) {
  std::vector<uint8_t> bytes(kReceiveBytes);
  for (;;) {
    while (!(connection.is_paused = connection.num_unsent() >= kMaxUnsentBytes)) {
      const auto message = connection.in.next();
      if (!message) break;
      table_.handle(id, decode_store_request(*message));
    }
    if (connection.is_paused) return true;
    const auto count = connection.session->receive(bytes);
    if (!count) return false;
    if (*count == 0) return true;
    connection.in.add(std::span(bytes).first(*count));
  }
}

/// Called by the table, also for other clients than the one whose request it handles.
void StoreServer::answer(uint64_t client, const StoreReply& reply) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  const auto bytes = encode(reply);
  found->second.out.insert(found->second.out.end(), bytes.begin(), bytes.end());
  answered_.push_back(client);
}

void StoreServer::send_answers() {
  for (const uint64_t id : std::exchange(answered_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Connection& connection = found->second;
    try {
      flush(connection);
    } catch (const std::exception&) {  // the client is gone
      remove(id);
      continue;
    }
    const size_t num_unsent = connection.num_unsent();
    if (num_unsent > kMostUnsentBytes) {
      remove(id);
      continue;
    }
    // The session may hold bytes that it has received already, of which the system knows nothing.
    uint32_t events = num_unsent > 0 || connection.is_paused ? uint32_t{EPOLLOUT} : 0;
    if (!connection.is_paused) events |= EPOLLIN;
    if (std::exchange(connection.events, events) != events) watch(connection.socket.get(), id, events);
  }
}

/// Sends what the system takes now.
void StoreServer::flush(Connection& connection) {
  while (connection.num_unsent() > 0) {
    const std::span<const uint8_t> rest = std::span(connection.out).subspan(connection.out_begin);
    const size_t count = connection.session->send(std::span(&rest, 1));
    if (count == 0) return;
    connection.out_begin += count;
    if (connection.out_begin < kMaxSentBytes) continue;
    connection.out.erase(connection.out.begin(),
                         connection.out.begin() + static_cast<std::ptrdiff_t>(connection.out_begin));
    connection.out_begin = 0;
  }
  connection.out.clear();
  connection.out_begin = 0;
}

void StoreServer::watch(int descriptor, uint64_t id, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void StoreServer::reject(uint64_t id) {
  ++num_rejected_;
  remove(id);
}

void StoreServer::remove(uint64_t id) {
  table_.forget(id);
  std::erase(strangers_, id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const bool was_client = found->second.is_admitted;
  connections_.erase(found);
  if (!was_client) return;
  MutexLock lock(mutex_);
  --num_clients_;
  changed_.notify_all();
}

}  // namespace lockstep
