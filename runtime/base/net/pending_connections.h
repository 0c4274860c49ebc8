#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// A connection to a server whose other end has not proved yet that it knows the job's token.
class PendingConnection {
 public:
  virtual ~PendingConnection() = default;

  /// Continues the handshake as far as possible without blocking. Returns true once it is over and the
  /// connection has been passed on. Throws if the other end is no process of the job: HandshakeError with the
  /// reason, or others.
  virtual bool advance() = 0;
  /// Returns the descriptor and poll()'s events to wait for after advance() has returned false.
  virtual pollfd awaited() const = 0;
  /// Returns whether the other end has sent a whole first message that strangers cannot make.
  virtual bool has_greeted() const = 0;
};

struct PendingConnectionLimits {
  int max_connections = 64;                   ///< at a time; at least 1
  std::chrono::milliseconds timeout{10'000};  ///< for the whole handshake of one connection
  /// A connection that is older may have to leave for another. A handshake takes one round trip.
  std::chrono::milliseconds slow_after{250};
  /// The same for one whose other end has not greeted. Clients that waited for a place have sent their
  /// greeting before they get it, so that a short time lets the queue move on, but those that have just
  /// connected, and are cut off, must connect again.
  std::chrono::milliseconds silent_after = slow_after;
};

/// The pending connections of a server, and the rule that keeps strangers from locking clients out: there are
/// only so many places, and new connections wait in the system's queue until one is free. If others wait,
/// connections that are slow give their places up, the oldest first. Each connection is closed after the time
/// for its handshake, however much it sends.
///
/// Only the counts may be read by other threads.
class PendingConnections {
 public:
  using Clock = std::chrono::steady_clock;

  /// Throws InvalidArgument if the limits leave no place.
  explicit PendingConnections(const PendingConnectionLimits& limits);

  /// Returns whether a place is free, or a connection has become slow.
  bool has_room(Clock::time_point now) const;
  /// Adds a connection, for which there must be room. Closes a slow one if all places are taken.
  void add(std::unique_ptr<PendingConnection> connection, Clock::time_point now);
  /// Counts a connection as rejected that was closed before it was added.
  void reject() { ++num_rejected_; }

  /// Appends an entry for each connection.
  void append_awaited(std::vector<pollfd>& polled) const;
  /// Advances the connections for which something has come. `polled` has the entries of append_awaited().
  /// Forgets those whose handshake is over, and closes those whose other end is no process of the job.
  void advance(std::span<const pollfd> polled);
  /// Closes the connections whose time is over.
  void end_late(Clock::time_point now);
  /// Returns when end_late() has something to do, or has_room() changes from false to true, unless a
  /// connection ends before. Never returns a time at which neither happens, so that you can wait until then.
  Clock::time_point next_change(Clock::time_point now) const;

  void clear() { connections_.clear(); }
  size_t size() const { return connections_.size(); }

  /// Returns how many connections were closed because they did not prove the token, or not in time.
  uint64_t num_rejected() const { return num_rejected_; }
  /// Returns how many of them had another token. These count as rejected first.
  uint64_t num_wrong_tokens() const { return num_wrong_tokens_; }

 private:
  struct Entry {
    std::unique_ptr<PendingConnection> connection;
    Clock::time_point begin;
  };

  Clock::time_point slow_from(const Entry& entry) const;
  bool is_over(PendingConnection& connection);

  const PendingConnectionLimits limits_;
  std::deque<Entry> connections_;  // oldest first
  std::atomic<uint64_t> num_rejected_{0};
  std::atomic<uint64_t> num_wrong_tokens_{0};
};

}  // namespace lockstep
