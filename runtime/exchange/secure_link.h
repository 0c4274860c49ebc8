#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/exchange/exchange_link.h"

namespace lockstep {

/// A link over TCP whose bytes are encrypted.
class SecureLink : public ExchangeLink {
 public:
  /// Takes ownership of a connected socket, over which the session has shaken hands.
  SecureLink(Descriptor socket, std::unique_ptr<TlsSession> session);

  size_t send(std::span<const std::span<const uint8_t>> parts) override;
  std::span<const uint8_t> received() override;
  void consume(size_t count) override;
  size_t receive(std::span<uint8_t> into) override;
  int descriptor() const override { return socket_.get(); }
  short begin_wait(bool to_send, bool to_receive) override;
  void end_wait(short) override {}
  void shut() noexcept override;
  const char* transport() const override { return "tls"; }

 private:
  size_t read(std::span<uint8_t> into);

  const Descriptor socket_;
  const std::unique_ptr<TlsSession> session_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // of the bytes in the buffer that are not consumed
  size_t end_ = 0;
  bool may_hold_more_ = true;  // whether the session may have bytes that the socket no longer shows
};

}  // namespace lockstep
