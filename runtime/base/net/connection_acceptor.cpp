#include "lockstep/runtime/base/net/connection_acceptor.h"

// C library headers, for their types.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/secret_granter.h"
#include "lockstep/runtime/base/net/socket_error.h"
#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {
namespace {

// After an error of the system that may pass.
constexpr std::chrono::milliseconds kAcceptPause{10};

/// The settings that all connections to a server share.
struct TlsAdmission {
  TlsAdmissionOptions options;
  std::function<void(AdmittedConnection)> admitted;
  std::shared_ptr<SecretGranter> granter;
};

class PendingTlsConnection final : public PendingConnection {
 public:
  PendingTlsConnection(Descriptor socket, std::shared_ptr<const TlsAdmission> admission)
      : admission_(std::move(admission)) {
    set_up_connection(socket.get());
    connection_.session = std::make_unique<TlsSession>(socket.get(), admission_->options.token,
                                                       admission_->options.admission, admission_->granter);
    connection_.socket = std::move(socket);
  }

  bool advance() override {
    if (!connection_.session->shake_hands()) return false;
    admission_->admitted(std::move(connection_));
    return true;
  }
  pollfd awaited() const override {
    return {connection_.session->handshake_descriptor(), connection_.session->handshake_event(), 0};
  }
  bool has_greeted() const override { return connection_.session->has_hello(); }

 private:
  const std::shared_ptr<const TlsAdmission> admission_;
  AdmittedConnection connection_;
};

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(std::vector<Listener> listeners, const PendingConnectionLimits& limits)
    : listeners_(std::move(listeners)),
      pending_(limits),
      interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (interruption_.get() < 0) throw_socket_error(errno, "eventfd");
  // A connection may be gone when it is accepted.
  for (const auto& listener : listeners_)
    fcntl(listener.socket.get(), F_SETFL, fcntl(listener.socket.get(), F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { serve(); });
}

ConnectionAcceptor::~ConnectionAcceptor() {
  stop();
}

void ConnectionAcceptor::interrupt() noexcept {
  is_interrupted_ = true;
  eventfd_write(interruption_.get(), 1);
}

void ConnectionAcceptor::stop() {
  interrupt();
  if (thread_.joinable()) thread_.join();
}

void ConnectionAcceptor::serve() {
  while (!is_interrupted_) {
    try {
      serve_once();
    } catch (const std::exception&) {  // out of descriptors or memory, for example: connections wait
      std::this_thread::sleep_for(kAcceptPause);
    }
  }
  // Those that connect from now on are refused, so that they do not wait for an answer.
  pending_.clear();
  listeners_.clear();
}

/// Waits until something has come, or a time is over, and handles it.
void ConnectionAcceptor::serve_once() {
  using Clock = PendingConnections::Clock;
  const auto now = Clock::now();
  const bool has_room = pending_.has_room(now);
  std::vector<pollfd> polled{{interruption_.get(), POLLIN, 0}};
  polled.reserve(1 + listeners_.size() + pending_.size());
  for (const auto& listener : listeners_)
    polled.push_back({has_room ? listener.socket.get() : -1, POLLIN, 0});
  const size_t num_own = polled.size();
  pending_.append_awaited(polled);
  if (poll(polled.data(), polled.size(), poll_timeout(pending_.next_change(now))) < 0) {
    if (errno == EINTR) return;
    throw_socket_error(errno, "poll");
  }
  pending_.advance(std::span(polled).subspan(num_own));
  pending_.end_late(Clock::now());
  for (size_t i = 0; i < listeners_.size(); ++i)
    if (polled[1 + i].revents != 0 && pending_.has_room(Clock::now())) accept(listeners_[i]);
}

/// Accepts one connection, so that a flood of them does not keep the others waiting.
void ConnectionAcceptor::accept(const Listener& listener) {
  Descriptor socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) {
    if (errno == ECONNABORTED || may_succeed_later(errno)) return;
    throw_socket_error(errno, "accept");
  }
  std::unique_ptr<PendingConnection> connection;
  try {
    connection = listener.begin(std::move(socket));
  } catch (const std::exception&) {
    pending_.reject();
    return;
  }
  pending_.add(std::move(connection), PendingConnections::Clock::now());
}

ConnectionAcceptor::Begin admit_by_tls(TlsAdmissionOptions options,
                                       std::function<void(AdmittedConnection)> admitted) {
  auto granter = options.grant ? std::make_shared<SecretGranter>(options.grant) : nullptr;
  const auto admission = std::make_shared<const TlsAdmission>(TlsAdmission{
      .options = std::move(options), .admitted = std::move(admitted), .granter = std::move(granter)});
  return [admission](Descriptor socket) {
    return std::make_unique<PendingTlsConnection>(std::move(socket), admission);
  };
}

}  // namespace lockstep
