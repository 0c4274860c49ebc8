#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// A connection to one other rank, which carries bytes in order in both directions. Nothing blocks: the
/// caller waits for several links at once with poll(). Use it from one thread, except for shut().
class ExchangeLink {
 public:
  ExchangeLink() = default;
  virtual ~ExchangeLink() = default;
  ExchangeLink(const ExchangeLink&) = delete;
  ExchangeLink& operator=(const ExchangeLink&) = delete;

  /// Takes bytes of the parts, in order, and returns how many; 0 if there is no room now. Throws
  /// std::system_error if the peer has closed the link.
  virtual size_t send(std::span<const std::span<const uint8_t>> parts) = 0;

  /// Returns bytes that have arrived, up to some limit; empty if there are none now. They stay valid, and are
  /// returned again, until they are consumed. Throws std::system_error if the peer has closed the link and
  /// nothing is left.
  virtual std::span<const uint8_t> received() = 0;
  /// Drops the first `count` bytes of received().
  virtual void consume(size_t count) = 0;
  /// Moves bytes that have arrived into `into`, and returns how many. Throws like received().
  virtual size_t receive(std::span<uint8_t> into);

  /// Returns the descriptor to wait for.
  virtual int descriptor() const = 0;
  /// Prepares for waiting until bytes can be sent, or received, or both. Returns the events to wait for, or 0
  /// if there is no need to wait.
  virtual short begin_wait(bool to_send, bool to_receive) = 0;
  /// Must follow the wait, with the events that poll() returned.
  virtual void end_wait(short events) = 0;

  /// Closes the link, so that both ends get errors from now on. Thread-safe. Does not block or throw.
  virtual void shut() noexcept = 0;

  /// Returns "tls", "tcp" or "shared memory".
  virtual const char* transport() const = 0;
};

}  // namespace lockstep
