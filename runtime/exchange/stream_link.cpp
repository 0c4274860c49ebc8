#include "lockstep/runtime/exchange/stream_link.h"

// C library headers, for their types.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {
namespace {

// Longer pieces are received at their destination, without a copy.
constexpr size_t kLeastDirectBytes = size_t{16} * 1024;

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

StreamLink::StreamLink(Descriptor socket, size_t buffer_bytes)
    : socket_(std::move(socket)), buffer_(buffer_bytes) {
  fcntl(descriptor(), F_SETFL, fcntl(descriptor(), F_GETFL) | O_NONBLOCK);
  const auto set = [this](int option, int value) {
    setsockopt(socket_.get(), IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_NODELAY, 1);
  keep_alive(socket_.get());
  // A peer may be busy for as long as it likes before it receives. With a limit, the system would close a
  // connection whose window stays full, although the peer answers.
  set(TCP_USER_TIMEOUT, 0);
}

std::span<const uint8_t> StreamLink::received() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = 0;  // read() may throw
    end_ = read(buffer_);
  }
  return std::span<const uint8_t>(buffer_).subspan(begin_, end_ - begin_);
}

void StreamLink::consume(size_t count) {
  begin_ += count;
}

size_t StreamLink::receive(std::span<uint8_t> into) {
  if (begin_ == end_ && into.size() >= kLeastDirectBytes) return read(into);
  const auto bytes = received();
  const size_t count = std::min(bytes.size(), into.size());
  std::memcpy(into.data(), bytes.data(), count);
  consume(count);
  return count;
}

short StreamLink::begin_wait(bool to_send, bool to_receive) {
  if (to_receive && (begin_ != end_ || may_hold_more())) return 0;
  return static_cast<short>((to_send ? POLLOUT : 0) | (to_receive ? POLLIN : 0));
}

void StreamLink::shut() noexcept {
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace lockstep
