#include "lockstep/runtime/exchange/secure_link.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/exchange/socket_link.h"

namespace lockstep {
namespace {

// As much as the session receives at once.
constexpr size_t kSecureBufferBytes = size_t{64} * 1024;
// Longer pieces are decrypted where they belong, without a copy.
constexpr size_t kLeastDecryptedBytes = size_t{16} * 1024;

}  // namespace

SecureLink::SecureLink(Descriptor socket, std::unique_ptr<TlsSession> session)
    : socket_(std::move(socket)), session_(std::move(session)), buffer_(kSecureBufferBytes) {
  prepare_for_exchanges(socket_.get());
}

size_t SecureLink::send(std::span<const std::span<const uint8_t>> parts) {
  return session_->send(parts);
}

/// Returns 0 if nothing has arrived.
size_t SecureLink::read(std::span<uint8_t> into) {
  const auto count = session_->receive(into);
  if (!count) throw std::system_error(std::make_error_code(std::errc::connection_reset), "receive");
  may_hold_more_ = *count == into.size();
  return *count;
}

std::span<const uint8_t> SecureLink::received() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = 0;  // read() may throw
    end_ = read(buffer_);
  }
  return std::span<const uint8_t>(buffer_).subspan(begin_, end_ - begin_);
}

void SecureLink::consume(size_t count) {
  begin_ += count;
}

size_t SecureLink::receive(std::span<uint8_t> into) {
  if (begin_ == end_ && into.size() >= kLeastDecryptedBytes) return read(into);
  const auto bytes = received();
  const size_t count = std::min(bytes.size(), into.size());
  std::memcpy(into.data(), bytes.data(), count);
  consume(count);
  return count;
}

short SecureLink::begin_wait(bool to_send, bool to_receive) {
  if (to_receive && (begin_ != end_ || may_hold_more_)) return 0;
  return static_cast<short>((to_send ? POLLOUT : 0) | (to_receive ? POLLIN : 0));
}

void SecureLink::shut() noexcept {
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace lockstep
