#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

/// Runs the handshake of a session, and blocks until it is over. Throws what TlsSession::shake_hands()
/// throws, and std::errc::timed_out at the deadline.
void shake_hands(TlsSession& session, StreamSocket::Clock::time_point deadline);

/// A TCP connection whose bytes are encrypted, closed on destruction. One thread may use it at a time, except
/// for shut() and shut_receiving(), which any thread may call.
class SecureSocket {
 public:
  explicit SecureSocket(StreamSocket socket);
  /// Takes a connection whose handshake is over.
  SecureSocket(StreamSocket socket, std::unique_ptr<TlsSession> session);

  /// Runs the client's side of the handshake. Blocks. Throws HandshakeError, and what StreamSocket::receive()
  /// throws; std::errc::connection_reset if the other end closes the connection.
  void meet(const JobToken& token, const ChannelIdentity& identity, StreamSocket::Clock::time_point deadline);
  /// Runs the server's side, and returns what the connection is for. Throws like meet().
  const ChannelIdentity& admit(const JobToken& token, const ChannelAdmission& admission,
                               StreamSocket::Clock::time_point deadline);

  /// Returns the session, after the handshake.
  const TlsSession& session() const { return *session_; }

  /// As StreamSocket::send() and receive(), after the handshake. Throw std::errc::bad_message, too, if bytes
  /// were changed on the way.
  void send(const std::vector<std::span<const uint8_t>>& parts, StreamSocket::Clock::time_point deadline,
            const std::function<void()>& on_readable = {});
  bool receive(const std::vector<std::span<uint8_t>>& parts, StreamSocket::Clock::time_point deadline);

  void shut_receiving() noexcept { socket_.shut_receiving(); }
  void shut() noexcept { socket_.shut(); }

 private:
  StreamSocket socket_;
  std::unique_ptr<TlsSession> session_;
};

}  // namespace lockstep
