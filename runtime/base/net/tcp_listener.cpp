#include "lockstep/runtime/base/net/tcp_listener.h"

// C library headers, for their types.
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/address_lookup.h"

namespace lockstep {
namespace {

std::string errno_text() {
  return std::system_category().message(errno);
}

AddressList addresses_of(const AddressQuery& query, const std::string& who) {
  try {
    return look_up_addresses(query, "[" + who + "] no address is known for");
  } catch (const std::system_error& error) {
    throw ClusterError(error.what());
  }
}

/// -1 if `descriptor` is not an internet socket.
int port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return -1;
}

}  // namespace

TcpListener::TcpListener(const std::string& host, int port, const std::string& who) {
  const auto addresses = addresses_of({.host = host, .port = port}, who);
  const auto fail = [&] {
    throw ClusterError("[" + who + "] expected an address and a port to listen on, but got " +
                       endpoint_text(host, port) + ": " + errno_text());
  };
  socket_ = ::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) fail();
  // A restarted job may find connections of the previous run that are still closing.
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket_, addresses->ai_addr, addresses->ai_addrlen) != 0) {
    const int error = errno;
    close(std::exchange(socket_, -1));
    errno = error;
    fail();
  }
  port_ = port_of(socket_);
}

TcpListener TcpListener::adopt(int descriptor, int port) {
  int type = 0;
  socklen_t size = sizeof(type);
  const bool is_stream =
      getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
  const int bound = is_stream ? port_of(descriptor) : -1;
  if (bound != port) {
    throw ClusterError("[join] expected descriptor " + std::to_string(descriptor) +
                       " to be a socket bound to port " + std::to_string(port) + ", but got " +
                       (bound < 0 ? "none" : "one of port " + std::to_string(bound)));
  }
  TcpListener listener;
  listener.socket_ = descriptor;
  listener.port_ = port;
  return listener;
}

TcpListener::~TcpListener() {
  if (socket_ >= 0) close(socket_);
}

TcpListener::TcpListener(TcpListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}

int TcpListener::release() {
  return std::exchange(socket_, -1);
}

std::string address_towards(const std::string& host, int port) {
  const auto addresses = addresses_of({.host = host, .port = port, .type = SOCK_DGRAM}, "join");
  // Connecting a datagram socket sends nothing, but makes the system choose the address that it would use.
  const int probe = ::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  const bool found = probe >= 0 && connect(probe, addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  const std::string error = errno_text();
  if (probe >= 0) close(probe);
  std::array<char, NI_MAXHOST> text{};
  if (!found || getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(), nullptr,
                            0, NI_NUMERICHOST) != 0)
    throw ClusterError("[join] found no way from this machine to " + endpoint_text(host, port) + ": " +
                       error);
  return text.data();
}

}  // namespace lockstep
