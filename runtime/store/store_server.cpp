#include "lockstep/runtime/store/store_server.h"

// C library headers, for their types.
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

namespace lockstep {
namespace {

constexpr uint64_t kInterruption = 0;  // among the ids of connections
constexpr size_t kReceiveBytes = size_t{64} * 1024;
// If a client takes no answers, nothing more is read from it, and then the connection is closed.
constexpr size_t kMaxUnsentBytes = kMaxStoreMessageBytes;
constexpr size_t kMostUnsentBytes = 10 * kMaxUnsentBytes;
// Bytes that have been sent are kept up to this size, or this share of the unsent ones, so that those are not
// moved for every answer.
constexpr size_t kMaxSentBytes = size_t{1} << 20;
constexpr size_t kUnsentPerSent = 4;

}  // namespace

StoreServer::StoreServer(TcpListener listener, const StoreServerOptions& options)
    : port_(listener.port()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options.limits, [this](uint64_t client, const StoreReply& reply) { answer(client, reply); }) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kInterruption}};
  if (listen(listener.descriptor(), ConnectionAcceptor::kBacklog) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, interruption_.get(), &event) != 0)
    throw ClusterError("[store] cannot listen on port " + std::to_string(port_) + ": " +
                       std::system_category().message(errno));
  const auto is_of_this_start = [generation = options.generation](const ChannelIdentity& identity) {
    return identity.purpose == kStorePurpose && identity.server == kStorePurpose &&
           identity.generation == generation;
  };
  std::vector<ConnectionAcceptor::Listener> listeners;
  listeners.push_back(
      {.socket = Descriptor(listener.release()),
       .begin = admit_by_tls({.token = options.token, .admission = is_of_this_start, .grant = options.grant},
                             [this](AdmittedConnection connection) { admit(std::move(connection)); })});
  acceptor_.emplace(std::move(listeners), options.pending);
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
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      try {
        id == kInterruption ? add_clients() : handle_events(id);
      } catch (const std::exception&) {  // out of memory, for example
        remove(id);
      }
      send_answers();
    }
  }
  connections_.clear();
  MutexLock lock(mutex_);
  num_clients_ = 0;
  changed_.notify_all();
}

/// Called by the acceptor's thread.
void StoreServer::admit(AdmittedConnection connection) {
  MutexLock lock(mutex_);
  admitted_.push_back(std::move(connection));
  eventfd_write(interruption_.get(), 1);
}

void StoreServer::add_clients() {
  eventfd_t count = 0;
  eventfd_read(interruption_.get(), &count);
  std::vector<AdmittedConnection> admitted;
  {
    MutexLock lock(mutex_);
    admitted.swap(admitted_);
  }
  for (auto& connection : admitted) {
    const uint64_t id = next_id_++;
    try {
      add_client(id, std::move(connection));
    } catch (const std::exception&) {  // out of memory; the others are served
      remove(id);
    }
  }
}

void StoreServer::add_client(uint64_t id, AdmittedConnection admitted) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, admitted.socket.get(), &event) != 0) return;
  connections_.emplace(id, Connection{.socket = std::move(admitted.socket),
                                      .session = std::move(admitted.session),
                                      .events = EPOLLIN});
  {
    MutexLock lock(mutex_);
    ++num_clients_;
  }
  answer(id, {.id = kStoreWelcome});
}

void StoreServer::handle_events(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // closed since the event came
  try {
    flush(found->second);
    const bool is_open = receive(id, found->second);
    answered_.push_back(id);
    if (!is_open) remove(id);
  } catch (const InvalidArgument&) {  // not a message
    ++num_rejected_;
    remove(id);
  } catch (const std::system_error&) {  // the connection is gone
    remove(id);
  }
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
    if (std::exchange(connection.events, events) == events) continue;
    epoll_event event{.events = events, .data = {.u64 = id}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event);
  }
}

/// Sends what the system takes now.
void StoreServer::flush(Connection& connection) {
  while (connection.num_unsent() > 0) {
    const std::span<const uint8_t> rest = std::span(connection.out).subspan(connection.out_begin);
    const size_t count = connection.session->send(std::span(&rest, 1));
    if (count == 0) return;
    connection.out_begin += count;
    if (connection.out_begin < std::max(kMaxSentBytes, connection.num_unsent() / kUnsentPerSent)) continue;
    connection.out.erase(connection.out.begin(),
                         connection.out.begin() + static_cast<std::ptrdiff_t>(connection.out_begin));
    connection.out_begin = 0;
  }
  connection.out.clear();
  connection.out_begin = 0;
}

void StoreServer::remove(uint64_t id) {
  table_.forget(id);
  if (connections_.erase(id) == 0) return;
  MutexLock lock(mutex_);
  --num_clients_;
  changed_.notify_all();
}

}  // namespace lockstep
