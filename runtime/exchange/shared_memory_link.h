#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/exchange/exchange_link.h"

namespace lockstep {

/// A link through memory that two processes of a machine share, with a ring buffer for each direction.
///
/// The memory has no name: it is passed through a Unix socket, and the system frees it once both processes
/// have ended, however they end. It does not count against the size of /dev/shm. The socket stays open. A
/// process that waits is woken by a byte through it, and sees there if the other one has ended. A process
/// that does not wait is not woken, so a busy link makes no system calls.
class SharedMemoryLink : public ExchangeLink {
 public:
  using Clock = std::chrono::steady_clock;

  /// Memory that no link uses yet.
  class Memory;

  /// Makes memory with `capacity` bytes in each direction. Throws std::system_error if the system has none
  /// left.
  static Memory allocate(size_t capacity);
  /// Passes the memory to the other end of a connected Unix socket, which it owns from now on. Throws
  /// std::system_error if the peer is gone. The socket is closed then.
  static std::unique_ptr<SharedMemoryLink> share(int socket, Memory memory);
  /// Receives the memory that the other end makes. Blocks until then. Throws std::system_error, timed_out at
  /// the deadline, and bad_message for memory that could shrink or has another layout.
  static std::unique_ptr<SharedMemoryLink> receive_from(int socket, Clock::time_point deadline);
  ~SharedMemoryLink() override;

  size_t send(std::span<const std::span<const uint8_t>> parts) override;
  std::span<const uint8_t> received() override;
  void consume(size_t count) override;
  int descriptor() const override { return socket_.get(); }
  short begin_wait(bool to_send, bool to_receive) override;
  void end_wait(short events) override;
  void shut() noexcept override;
  const char* transport() const override { return "shared memory"; }

 private:
  struct Ring;
  struct Layout;
  class Mapping;

  SharedMemoryLink(Descriptor socket, std::unique_ptr<Mapping> mapping, bool is_maker);

  void wake_peer();
  size_t num_free() const;
  size_t num_received() const;

  const Descriptor socket_;
  const std::unique_ptr<Mapping> mapping_;
  Ring* const out_;
  Ring* const in_;
  // This end's own counts, which the peer cannot change.
  uint64_t num_written_ = 0;
  uint64_t num_read_ = 0;
  bool is_closed_ = false;
};

class SharedMemoryLink::Memory {
 private:
  friend class SharedMemoryLink;
  Memory(Descriptor descriptor, std::unique_ptr<Mapping> mapping);

  Descriptor descriptor_;
  std::unique_ptr<Mapping> mapping_;

 public:
  ~Memory();
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
};

}  // namespace lockstep
