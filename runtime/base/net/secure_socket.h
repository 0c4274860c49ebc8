#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tls_session.h"

namespace lockstep {

/// A TCP connection whose bytes are encrypted, closed on destruction. One thread may use it at a time, except
/// for shut() and shut_receiving(), which any thread may call.
class SecureSocket {
 public:
  explicit SecureSocket(StreamSocket socket);

  /// Runs the client's side of the handshake. Blocks. Throws HandshakeError, and what StreamSocket::receive()
  /// throws; std::errc::connection_reset if the other end closes the connection.
  void meet(const JobToken& token, const ChannelIdentity& identity, StreamSocket::Clock::time_point deadline);
  /// Runs the server's side, and returns what the connection is for. Throws like meet().
  const ChannelIdentity& admit(const JobToken& token, const ChannelAdmission& admission,
                               StreamSocket::Clock::time_point deadline,
                               std::shared_ptr<const SecretGrant> grant = nullptr);

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
  void shake_hands(StreamSocket::Clock::time_point deadline);

  StreamSocket socket_;
  std::unique_ptr<TlsSession> session_;
};

}  // namespace lockstep
