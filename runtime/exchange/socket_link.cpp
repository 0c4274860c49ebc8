#include "lockstep/runtime/exchange/socket_link.h"

// C library headers, for their types.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/runtime/base/net/socket_error.h"

namespace lockstep {
namespace {

// As much as stays in a core's L2 cache until it is added to the values.
constexpr size_t kBufferBytes = size_t{256} * 1024;
constexpr size_t kMaxVectors = 16;

}  // namespace

SocketLink::SocketLink(int socket) : StreamLink(Descriptor(socket), kBufferBytes) {}

size_t SocketLink::send(std::span<const std::span<const uint8_t>> parts) {
  iovec vectors[kMaxVectors];
  const size_t num_vectors = std::min(parts.size(), kMaxVectors);
  for (size_t i = 0; i < num_vectors; ++i)
    vectors[i] = {const_cast<uint8_t*>(parts[i].data()), parts[i].size()};
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = num_vectors;
  const ssize_t count = sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0) return static_cast<size_t>(count);
  if (may_succeed_later(errno)) return 0;
  throw_socket_error(errno, "send");
}

size_t SocketLink::read(std::span<uint8_t> into) {
  const ssize_t count = recv(descriptor(), into.data(), into.size(), MSG_DONTWAIT);
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && may_succeed_later(errno)) return 0;
  throw_socket_error(count == 0 ? ECONNRESET : errno, "receive");
}

}  // namespace lockstep
