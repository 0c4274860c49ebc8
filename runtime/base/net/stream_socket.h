#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A TCP connection, closed on destruction. One thread may send while another receives; any thread may call
/// shut() and shut_receiving().
class StreamSocket {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNoDeadline = Clock::time_point::max();

  /// Takes ownership of a connected socket.
  explicit StreamSocket(int descriptor);
  /// Connects to the first of the host's addresses that accepts, and blocks until connected. May ask a name
  /// server. Throws std::system_error: std::errc::timed_out at the deadline, std::errc::connection_refused if
  /// nobody listens, or the system's error.
  static StreamSocket connect(const std::string& host, int port, Clock::time_point deadline);
  ~StreamSocket();
  StreamSocket(StreamSocket&& other) noexcept;
  StreamSocket& operator=(StreamSocket&&) = delete;

  /// Sends all parts in order; blocks until the system has accepted them. Throws std::system_error:
  /// std::errc::timed_out at the deadline, when some bytes may have been sent; std::errc::connection_reset or
  /// broken_pipe if the other end is gone or shut() was called.
  ///
  /// Calls `on_readable` in this thread whenever data can be received while the system accepts no more data
  /// to send. It should receive some of it, so that two ends that send to each other do not deadlock.
  void send(std::vector<std::span<const uint8_t>> parts, Clock::time_point deadline,
            const std::function<void()>& on_readable = {});
  /// Receives into all parts in order; blocks until they are filled. Returns false if the other end closed
  /// before the first byte. Throws like send(), and std::errc::connection_reset if the other end closes
  /// within the parts.
  bool receive(std::vector<std::span<uint8_t>> parts, Clock::time_point deadline);

  /// Calls wait_for_events() with the connection's descriptor.
  short wait_for(short events, Clock::time_point deadline) const;

  int descriptor() const { return descriptor_; }
  /// Returns the descriptor, and gives up its ownership.
  int release() { return std::exchange(descriptor_, -1); }

  /// Stops receiving, as if the other end had closed. Does not block or throw.
  void shut_receiving() noexcept;
  /// Ends all current and future sending and receiving. Does not block or throw.
  void shut() noexcept;

 private:
  int descriptor_ = -1;
};

/// Blocks until one of poll()'s `events` has come from a descriptor. Returns those that are ready, or others
/// for an error, which the next call then reports; 0 at the deadline.
short wait_for_events(int descriptor, short events, StreamSocket::Clock::time_point deadline);

/// Sets a TCP connection up as StreamSocket does: nothing blocks, small messages are sent at once, and a
/// machine that is gone is noticed within a minute.
void set_up_connection(int descriptor);

/// Lets the system probe a TCP connection, so that waits for a machine that is gone end within a minute.
void keep_alive(int descriptor);

}  // namespace lockstep
