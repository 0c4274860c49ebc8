#include "lockstep/runtime/base/net/secure_socket.h"

#include <poll.h>

#include <system_error>
#include <utility>

#include "lockstep/runtime/base/net/byte_parts.h"
#include "lockstep/runtime/base/net/socket_error.h"

namespace lockstep {

void shake_hands(TlsSession& session, StreamSocket::Clock::time_point deadline) {
  while (!session.shake_hands()) {
    if (wait_for_events(session.handshake_descriptor(), session.handshake_event(), deadline) == 0)
      throw_socket_error(std::errc::timed_out, "handshake");
  }
}

SecureSocket::SecureSocket(StreamSocket socket) : socket_(std::move(socket)) {}

SecureSocket::SecureSocket(StreamSocket socket, std::unique_ptr<TlsSession> session)
    : socket_(std::move(socket)), session_(std::move(session)) {}

void SecureSocket::meet(const JobToken& token, const ChannelIdentity& identity,
                        StreamSocket::Clock::time_point deadline) {
  session_ = std::make_unique<TlsSession>(socket_.descriptor(), token, identity);
  shake_hands(*session_, deadline);
}

const ChannelIdentity& SecureSocket::admit(const JobToken& token, const ChannelAdmission& admission,
                                           StreamSocket::Clock::time_point deadline) {
  session_ = std::make_unique<TlsSession>(socket_.descriptor(), token, admission);
  shake_hands(*session_, deadline);
  return session_->identity();
}

void SecureSocket::send(const std::vector<std::span<const uint8_t>>& parts,
                        StreamSocket::Clock::time_point deadline, const std::function<void()>& on_readable) {
  const auto events = static_cast<short>(on_readable ? POLLOUT | POLLIN : POLLOUT);
  std::vector<std::span<const uint8_t>> rest = parts;
  std::span<std::span<const uint8_t>> left = rest;
  drop_front(left, 0);
  while (!left.empty()) {
    drop_front(left, session_->send(left));
    if (left.empty()) return;
    const short come = socket_.wait_for(events, deadline);
    if (come == 0) throw_socket_error(std::errc::timed_out, "send");
    if ((come & (POLLOUT | POLLIN)) == POLLIN && on_readable) on_readable();
  }
}

bool SecureSocket::receive(const std::vector<std::span<uint8_t>>& parts,
                           StreamSocket::Clock::time_point deadline) {
  bool has_begun = false;
  for (auto part : parts) {
    while (!part.empty()) {
      const auto count = session_->receive(part);
      if (!count && !has_begun) return false;
      if (!count) throw_socket_error(std::errc::connection_reset, "receive");
      part = part.subspan(*count);
      has_begun = has_begun || *count > 0;
      if (*count == 0 && socket_.wait_for(POLLIN, deadline) == 0)
        throw_socket_error(std::errc::timed_out, "receive");
    }
  }
  return true;
}

}  // namespace lockstep
