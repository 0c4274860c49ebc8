#include "lockstep/runtime/base/net/tls_session.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/net/socket_error.h"

namespace lockstep {
namespace {

// Records that are given to the system, or taken from it, by one call. More would leave the core's L2 cache
// before they are used.
constexpr size_t kRecordsAtOnce = 8;

/// A buffer keeps its size, so that bytes are set to zero only once, and small messages need little memory.
void make_room(std::vector<uint8_t>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

TlsSession::TlsSession(int socket, const JobToken& token, const ChannelIdentity& identity)
    : socket_(socket), handshake_(std::make_unique<TlsHandshake>(socket, token, identity)) {}

TlsSession::TlsSession(int socket, const JobToken& token, ChannelAdmission admission,
                       std::shared_ptr<SecretGranter> granter)
    : socket_(socket),
      granter_(std::move(granter)),
      handshake_(std::make_unique<TlsHandshake>(socket, token, std::move(admission),
                                                granter_ ? granter_->grant() : nullptr)) {}

TlsSession::~TlsSession() = default;

bool TlsSession::shake_hands() {
  if (!granting_ && !secure()) return false;
  if (!granting_) return true;
  grant();
  return false;
}

/// Continues TLS's own handshake, and returns whether it is over.
bool TlsSession::secure() {
  if (!handshake_->advance()) return false;
  identity_ = handshake_->identity();
  binding_ = handshake_->binding();
  auto secrets = handshake_->secrets();
  sealer_.emplace(secrets.sending);
  opener_.emplace(secrets.receiving);
  secrets.cleanse();
  // Everybody knows the key of those who ask for the secret: no connection of theirs passes for a client's.
  if (handshake_->is_server() && identity_.purpose == kSecretPurpose)
    granting_ = std::make_unique<SecretGranting>(granter_);
  granter_.reset();
  handshake_.reset();
  return true;
}

/// Answers a client that asks for the secret, and throws once it is answered.
void TlsSession::grant() {
  if (!granting_->advance(*this) || !flush()) return;
  if (granting_->has_granted())
    throw HandshakeError(HandshakeError::Reason::kGranted, "the secret of the job was given");
  throw HandshakeError(HandshakeError::Reason::kToken,
                       "expected a process of this user and this job, but another one asked for the secret");
}

short TlsSession::handshake_event() const {
  if (handshake_) return handshake_->event();
  return out_begin_ < out_end_ ? POLLOUT : POLLIN;
}

int TlsSession::handshake_descriptor() const {
  const SecretCheck* check = granting_ ? granting_->awaited_check() : nullptr;
  return check != nullptr ? check->descriptor() : socket_;
}

/// Returns false if the system takes no more bytes now.
bool TlsSession::flush() {
  while (out_begin_ < out_end_) {
    const ssize_t count =
        ::send(socket_, out_.data() + out_begin_, out_end_ - out_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && may_succeed_later(errno)) return false;
    if (count < 0) throw_socket_error(errno, "send");
    out_begin_ += static_cast<size_t>(count);
  }
  out_begin_ = 0;
  out_end_ = 0;
  return true;
}

/// Encrypts bytes of the parts from byte `begin` on. Returns false if there are none.
bool TlsSession::encrypt_some(std::span<const std::span<const uint8_t>> parts, size_t begin) {
  size_t left = 0;
  for (const auto& part : parts) left += part.size();
  left -= begin;
  for (size_t i = 0; i < kRecordsAtOnce && left > 0; ++i) {
    const bool needs_key = sealer_->num_records() >= records_of_a_key_;
    make_room(out_, out_end_ + (needs_key ? 2 : 1) * TlsRecord::kMaxBytes);
    if (needs_key) out_end_ += sealer_->seal_key_update(std::span(out_).subspan(out_end_));
    const size_t count = sealer_->seal(parts, begin + num_encrypted_, std::span(out_).subspan(out_end_));
    out_end_ += count + TlsRecord::kOverheadBytes;
    num_encrypted_ += count;
    left -= count;
  }
  return num_encrypted_ > 0;
}

size_t TlsSession::send(std::span<const std::span<const uint8_t>> parts) {
  size_t num_taken = 0;
  while (flush()) {
    num_taken += std::exchange(num_encrypted_, 0);
    if (!encrypt_some(parts, num_taken)) break;
  }
  return num_taken;
}

/// Moves bytes that are decrypted already into `into`, and returns how many.
size_t TlsSession::take_decrypted(std::span<uint8_t> into) {
  const size_t count = std::min(decrypted_.size(), into.size());
  if (count > 0) std::memcpy(into.data(), decrypted_.data(), count);
  decrypted_ = decrypted_.subspan(count);
  return count;
}

/// Receives what has arrived. Returns false if there is nothing now, and if the other end has closed the
/// connection. Only while no decrypted bytes are left.
bool TlsSession::receive_some() {
  if (in_begin_ > 0) {  // at most one record moves
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= std::exchange(in_begin_, 0);
  }
  // Grows if the last call filled it.
  make_room(in_, std::min(in_end_ + TlsRecord::kMaxBytes, kRecordsAtOnce * TlsRecord::kMaxBytes));
  const ssize_t count = recv(socket_, in_.data() + in_end_, in_.size() - in_end_, MSG_DONTWAIT);
  if (count < 0 && !may_succeed_later(errno)) throw_socket_error(errno, "receive");
  is_closed_ = count == 0;
  if (count > 0) in_end_ += static_cast<size_t>(count);
  return count > 0;
}

/// Returns the next record that has arrived as a whole, and nullopt if there is none.
std::optional<std::span<const uint8_t>> TlsSession::next_record() {
  const auto arrived = std::span<const uint8_t>(in_).subspan(in_begin_, in_end_ - in_begin_);
  const size_t size = TlsOpener::record_size(arrived);
  if (size == 0 || size > arrived.size()) return std::nullopt;
  in_begin_ += size;
  return arrived.first(size);
}

std::optional<size_t> TlsSession::receive(std::span<uint8_t> into) {
  size_t count = take_decrypted(into);
  while (count < into.size() && !is_closed_) {
    const auto record = next_record();
    if (!record) {
      if (!receive_some()) break;
      continue;
    }
    const auto rest = into.subspan(count);
    const bool fits = rest.size() >= TlsOpener::content_size(*record);
    // In the place of the encrypted bytes otherwise, which is in in_.
    uint8_t* content = fits ? rest.data() : const_cast<uint8_t*>(record->data()) + TlsRecord::kHeaderBytes;
    const auto size = opener_->open(*record, content);
    is_closed_ = !size.has_value();
    if (fits) {
      count += size.value_or(0);
    } else {
      decrypted_ = std::span<const uint8_t>(content, size.value_or(0));
      count += take_decrypted(rest);
    }
  }
  if (count == 0 && is_closed_ && !into.empty()) return std::nullopt;
  return count;
}

}  // namespace lockstep
