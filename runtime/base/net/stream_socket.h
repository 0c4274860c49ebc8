#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A TCP connection, closed on destruction. One thread may send while another receives, and any may shut().
class StreamSocket {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNoDeadline = Clock::time_point::max();

  /// Takes over a connected socket.
  explicit StreamSocket(int descriptor);
  /// Blocks until connected, to the first of the host's addresses that takes it. May ask a name server.
  /// Throws std::system_error: std::errc::timed_out at the deadline, std::errc::connection_refused where
  /// nobody listens, and what else the system says.
  static StreamSocket connect(const std::string& host, int port, Clock::time_point deadline);
  ~StreamSocket();
  StreamSocket(StreamSocket&& other) noexcept;
  StreamSocket& operator=(StreamSocket&&) = delete;

  /// Blocks until the system has taken all parts, in order. Throws std::system_error: std::errc::timed_out at
  /// the deadline, when a part of it may have gone out; std::errc::connection_reset or broken_pipe where the
  /// other end is gone or shut() was called.
  ///
  /// `on_readable` is called, from here, whenever there is something to receive while the system takes
  /// nothing more: it receives some of it, so that two ends that send to each other do not wait for each
  /// other.
  void send(std::vector<std::span<const uint8_t>> parts, Clock::time_point deadline,
            const std::function<void()>& on_readable = {});
  /// Blocks until all parts are filled, in order. Throws as send(), with std::errc::connection_reset for an
  /// end within the parts. False where the other end has closed before the first byte.
  bool receive(std::vector<std::span<uint8_t>> parts, Clock::time_point deadline);

  /// Nothing more is received: as if the other end had closed. Does not block or throw.
  void shut_receiving() noexcept;
  /// Ends all sending and receiving, that which waits now and that to come. Does not block or throw.
  void shut() noexcept;

 private:
  // Those that have come, or other ones for an error, which the next call then says; 0 at the deadline.
  short wait_for(short events, Clock::time_point deadline) const;

  int descriptor_ = -1;
};

}  // namespace lockstep
