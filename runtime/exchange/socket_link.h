#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/runtime/exchange/stream_link.h"

namespace lockstep {

/// A link over a stream socket, such as TCP's. Bytes are not encrypted.
class SocketLink : public StreamLink {
 public:
  /// Takes ownership of a connected socket.
  explicit SocketLink(int socket);

  size_t send(std::span<const std::span<const uint8_t>> parts) override;
  const char* transport() const override { return "tcp"; }

 private:
  size_t read(std::span<uint8_t> into) override;
};

}  // namespace lockstep
