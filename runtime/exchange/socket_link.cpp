#include "lockstep/runtime/exchange/socket_link.h"

// C library headers, for their types.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {
namespace {

// As much as stays in a core's L2 cache until it is added to the values.
constexpr size_t kBufferBytes = size_t{256} * 1024;
// Longer pieces are received where they belong, without a copy.
constexpr size_t kLeastDirectBytes = size_t{16} * 1024;
constexpr size_t kMaxVectors = 16;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

size_t ExchangeLink::receive(std::span<uint8_t> into) {
  size_t count = 0;
  while (count < into.size()) {
    const auto bytes = received();
    if (bytes.empty()) break;
    const size_t part = std::min(bytes.size(), into.size() - count);
    std::memcpy(into.data() + count, bytes.data(), part);
    consume(part);
    count += part;
  }
  return count;
}

void prepare_for_exchanges(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const auto set = [socket](int option, int value) {
    setsockopt(socket, IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_NODELAY, 1);
  keep_alive(socket);
  // A peer may be busy for as long as it likes before it receives. With a limit, the system would close a
  // connection whose window stays full, although the peer answers.
  set(TCP_USER_TIMEOUT, 0);
}

SocketLink::SocketLink(int socket) : socket_(socket), buffer_(kBufferBytes) {
  prepare_for_exchanges(socket);
}

size_t SocketLink::send(std::span<const std::span<const uint8_t>> parts) {
  iovec vectors[kMaxVectors];
  const size_t num_vectors = std::min(parts.size(), kMaxVectors);
  for (size_t i = 0; i < num_vectors; ++i)
    vectors[i] = {const_cast<uint8_t*>(parts[i].data()), parts[i].size()};
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = num_vectors;
  const ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0) return static_cast<size_t>(count);
  if (would_block(errno)) return 0;
  throw std::system_error(errno, std::generic_category(), "send");
}

/// Returns 0 if nothing has arrived.
size_t SocketLink::read(std::span<uint8_t> into) {
  const ssize_t count = recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && would_block(errno)) return 0;
  throw std::system_error(count == 0 ? ECONNRESET : errno, std::generic_category(), "receive");
}

std::span<const uint8_t> SocketLink::received() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = read(buffer_);
  }
  return std::span<const uint8_t>(buffer_).subspan(begin_, end_ - begin_);
}

void SocketLink::consume(size_t count) {
  begin_ += count;
}

size_t SocketLink::receive(std::span<uint8_t> into) {
  if (begin_ == end_ && into.size() >= kLeastDirectBytes) return read(into);
  const auto bytes = received();
  const size_t count = std::min(bytes.size(), into.size());
  std::memcpy(into.data(), bytes.data(), count);
  consume(count);
  return count;
}

short SocketLink::begin_wait(bool to_send, bool to_receive) {
  if (to_receive && begin_ != end_) return 0;
  return static_cast<short>((to_send ? POLLOUT : 0) | (to_receive ? POLLIN : 0));
}

void SocketLink::shut() noexcept {
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace lockstep
