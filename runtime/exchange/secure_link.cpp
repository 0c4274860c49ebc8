#include "lockstep/runtime/exchange/secure_link.h"

#include <system_error>
#include <utility>

namespace lockstep {
namespace {

// As much as the session receives at once.
constexpr size_t kSecureBufferBytes = size_t{64} * 1024;

}  // namespace

SecureLink::SecureLink(Descriptor socket, std::unique_ptr<TlsSession> session)
    : StreamLink(std::move(socket), kSecureBufferBytes), session_(std::move(session)) {}

size_t SecureLink::send(std::span<const std::span<const uint8_t>> parts) {
  return session_->send(parts);
}

size_t SecureLink::read(std::span<uint8_t> into) {
  const auto count = session_->receive(into);
  if (!count) throw std::system_error(std::make_error_code(std::errc::connection_reset), "receive");
  has_filled_ = *count == into.size();
  return *count;
}

}  // namespace lockstep
