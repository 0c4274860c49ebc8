#include "lockstep/runtime/exchange/pending_link.h"

// C library headers, for their types.
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/net/socket_error.h"
#include "lockstep/runtime/base/net/tls_handshake.h"

namespace lockstep {
namespace {

bool is_of_same_user(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

/// A new socket has room for these few bytes.
void send_at_once(int socket, std::span<const uint8_t> bytes) {
  if (send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
    throw_socket_error(std::errc::connection_reset, "handshake");
}

}  // namespace

PendingLink::PendingLink(Descriptor socket, const PendingLinkOptions& options, Accept accept)
    : socket_(std::move(socket)),
      options_(options),
      accept_(std::move(accept)),
      greeting_(make_link_greeting()) {
  if (options_.is_local && !is_of_same_user(socket_.get()))
    throw_socket_error(std::errc::permission_denied, "handshake");
  send_at_once(socket_.get(), greeting_);
}

bool PendingLink::advance() {
  if (!has_come()) return false;
  const auto hello = read_link_hello(options_.token, greeting_, hello_);
  if (!hello) throw HandshakeError(HandshakeError::Reason::kForeign, "expected a hello with the job's token");
  if (hello->generation != options_.generation || hello->to != options_.rank ||
      (hello->has_shared_memory && !options_.is_local))
    throw HandshakeError(HandshakeError::Reason::kIdentity,
                         "expected a rank of this start of the job that wants to reach this rank");
  send_at_once(socket_.get(), make_link_answer(options_.token, greeting_, hello_));
  accept_(*hello, std::move(socket_));
  return true;
}

/// Receives more of the hello. Returns whether all of it has arrived.
bool PendingLink::has_come() {
  std::array<uint8_t, kLinkHelloBytes> bytes{};
  const ssize_t count = recv(socket_.get(), bytes.data(), kLinkHelloBytes - hello_.size(), MSG_DONTWAIT);
  if (count < 0 && may_succeed_later(errno)) return false;
  if (count <= 0) throw_socket_error(std::errc::connection_reset, "handshake");
  hello_.insert(hello_.end(), bytes.begin(), bytes.begin() + count);
  return hello_.size() == kLinkHelloBytes;
}

}  // namespace lockstep
