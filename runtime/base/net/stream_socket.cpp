#include "lockstep/runtime/base/net/stream_socket.h"

// C library headers, for their types.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/base/net/byte_parts.h"
#include "lockstep/runtime/base/net/socket_error.h"

namespace lockstep {
namespace {

void set_option(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

/// Vectors for one system call, which would refuse more.
template <typename Byte>
std::vector<iovec> vectors_of(std::span<const std::span<Byte>> parts) {
  constexpr size_t kMaxVectors = 256;
  std::vector<iovec> vectors;
  vectors.reserve(std::min(parts.size(), kMaxVectors));
  for (const auto& part : parts.first(std::min(parts.size(), kMaxVectors)))
    vectors.push_back({const_cast<uint8_t*>(part.data()), part.size()});
  return vectors;
}

/// If nobody listens on a port, the system may choose that port for the connecting socket. TCP then connects
/// the socket to itself: nobody answers, and the intended listener finds the port in use.
bool is_connected_to_itself(int descriptor) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

}  // namespace

StreamSocket::StreamSocket(int descriptor) : descriptor_(descriptor) {
  set_up_connection(descriptor_);
}

void set_up_connection(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  keep_alive(descriptor);
  // Sends to a machine that is gone end within a minute, too.
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

void keep_alive(int descriptor) {
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

StreamSocket::~StreamSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

StreamSocket::StreamSocket(StreamSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

StreamSocket StreamSocket::connect(const std::string& host, int port, Clock::time_point deadline) {
  const auto addresses = look_up_addresses({.host = host, .port = port}, "no address is known for");
  int error = ECONNREFUSED;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const int descriptor = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    StreamSocket socket(descriptor);
    error = ::connect(descriptor, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (socket.wait_for(POLLOUT, deadline) == 0) throw_socket_error(ETIMEDOUT, "connect");
      socklen_t size = sizeof(error);
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0 && is_connected_to_itself(descriptor)) error = ECONNREFUSED;
    if (error == 0) return socket;
  }
  throw_socket_error(error, "connect");
}

short StreamSocket::wait_for(short events, Clock::time_point deadline) const {
  return wait_for_events(descriptor_, events, deadline);
}

short wait_for_events(int descriptor, short events, StreamSocket::Clock::time_point deadline) {
  for (;;) {
    pollfd polled{descriptor, events, 0};
    const int count = poll(&polled, 1, poll_timeout(deadline));
    if (count > 0) return polled.revents;
    if (count < 0 && errno != EINTR) throw_socket_error(errno, "poll");
    if (StreamSocket::Clock::now() >= deadline) return 0;
  }
}

void StreamSocket::send(std::vector<std::span<const uint8_t>> parts, Clock::time_point deadline,
                        const std::function<void()>& on_readable) {
  const auto events = static_cast<short>(on_readable ? POLLOUT | POLLIN : POLLOUT);
  std::span<std::span<const uint8_t>> left = parts;
  drop_front(left, 0);
  while (!left.empty()) {
    auto vectors = vectors_of<const uint8_t>(left);
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t count = sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (count >= 0) {
      drop_front(left, static_cast<size_t>(count));
    } else if (may_succeed_later(errno)) {
      const short come = wait_for(events, deadline);
      if (come == 0) throw_socket_error(ETIMEDOUT, "send");
      if ((come & (POLLOUT | POLLIN)) == POLLIN && on_readable) on_readable();
    } else if (errno != EINTR) {
      throw_socket_error(errno, "send");
    }
  }
}

bool StreamSocket::receive(std::vector<std::span<uint8_t>> parts, Clock::time_point deadline) {
  std::span<std::span<uint8_t>> left = parts;
  drop_front(left, 0);
  bool has_begun = false;
  while (!left.empty()) {
    auto vectors = vectors_of<uint8_t>(left);
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t count = recvmsg(descriptor_, &message, 0);
    if (count > 0) {
      has_begun = true;
      drop_front(left, static_cast<size_t>(count));
    } else if (count == 0) {
      if (!has_begun) return false;
      throw_socket_error(ECONNRESET, "receive");
    } else if (may_succeed_later(errno)) {
      if (wait_for(POLLIN, deadline) == 0) throw_socket_error(ETIMEDOUT, "receive");
    } else if (errno != EINTR) {
      throw_socket_error(errno, "receive");
    }
  }
  return true;
}

void StreamSocket::shut_receiving() noexcept {
  shutdown(descriptor_, SHUT_RD);
}

void StreamSocket::shut() noexcept {
  shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace lockstep
