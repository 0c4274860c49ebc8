#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/exchange/exchange_link.h"

namespace lockstep {

/// The part that links over a stream socket share: a buffer for bytes that arrive in small pieces.
class StreamLink : public ExchangeLink {
 public:
  std::span<const uint8_t> received() override;
  void consume(size_t count) override;
  size_t receive(std::span<uint8_t> into) override;
  int descriptor() const override { return socket_.get(); }
  short begin_wait(bool to_send, bool to_receive) override;
  void end_wait(short) override {}
  void shut() noexcept override;

 protected:
  /// Prepares a connected socket for a link.
  StreamLink(Descriptor socket, size_t buffer_bytes);

  /// Moves bytes that have arrived into `into`, and returns how many; 0 if there are none now. Throws like
  /// received().
  virtual size_t read(std::span<uint8_t> into) = 0;
  /// Returns true if read() may have bytes although the socket has none.
  virtual bool may_hold_more() const { return false; }

 private:
  const Descriptor socket_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // of the bytes in the buffer that are not consumed
  size_t end_ = 0;
};

}  // namespace lockstep
