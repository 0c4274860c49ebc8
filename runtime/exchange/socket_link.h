#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/exchange/exchange_link.h"

namespace lockstep {

/// Prepares a connected socket for a link.
void prepare_for_exchanges(int socket);

/// A link over a stream socket, such as TCP's. Bytes are not encrypted.
class SocketLink : public ExchangeLink {
 public:
  /// Takes ownership of a connected socket.
  explicit SocketLink(int socket);

  size_t send(std::span<const std::span<const uint8_t>> parts) override;
  std::span<const uint8_t> received() override;
  void consume(size_t count) override;
  size_t receive(std::span<uint8_t> into) override;
  int descriptor() const override { return socket_.get(); }
  short begin_wait(bool to_send, bool to_receive) override;
  void end_wait(short) override {}
  void shut() noexcept override;
  const char* transport() const override { return "tcp"; }

 private:
  size_t read(std::span<uint8_t> into);

  const Descriptor socket_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // of the bytes in the buffer that are not consumed
  size_t end_ = 0;
};

}  // namespace lockstep
