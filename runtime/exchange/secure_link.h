#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/exchange/stream_link.h"

namespace lockstep {

/// A link over TCP whose bytes are encrypted.
class SecureLink : public StreamLink {
 public:
  /// Takes ownership of a connected socket, over which the session has shaken hands.
  SecureLink(Descriptor socket, std::unique_ptr<TlsSession> session);

  size_t send(std::span<const std::span<const uint8_t>> parts) override;
  const char* transport() const override { return "tls"; }

 private:
  size_t read(std::span<uint8_t> into) override;
  bool may_hold_more() const override { return has_filled_; }

  const std::unique_ptr<TlsSession> session_;
  bool has_filled_ = true;  // the last read() got all that it asked for, so more may be left
};

}  // namespace lockstep
