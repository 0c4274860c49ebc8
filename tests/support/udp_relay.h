#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/udp_socket.h"

namespace lockstep::testing {

/// Faults of the link, drawn for each datagram.
struct RelayFaults {
  int lost_percent = 0;
  int duplicated_percent = 0;
  std::chrono::milliseconds most_delay{0};  ///< drawn from 0 to this, so that datagrams overtake each other
};

/// One direction of a bad link: forwards datagrams from its port on 127.0.0.1 to another, with faults drawn
/// by a seeded generator. Runs its own thread. Thread-safe.
class UdpRelay {
 public:
  UdpRelay(int receiver_port, RelayFaults faults, uint64_t seed);
  ~UdpRelay();
  UdpRelay(const UdpRelay&) = delete;
  UdpRelay& operator=(const UdpRelay&) = delete;

  int port() const { return socket_.port(); }

  void set_faults(RelayFaults faults);

  struct Counters {
    int64_t arrived = 0;
    int64_t lost = 0;
    int64_t overtaken = 0;  ///< datagrams forwarded after one that arrived later
  };
  Counters counters() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Datagram {
    int64_t number;
    std::vector<uint8_t> bytes;
  };

  void run();
  void accept(const std::vector<uint8_t>& bytes) LOCKSTEP_REQUIRES(mutex_);
  void forward_due() LOCKSTEP_REQUIRES(mutex_);
  int64_t draw(int64_t most) LOCKSTEP_REQUIRES(mutex_);

  UdpSocket socket_;
  const SocketAddress receiver_;
  mutable Mutex mutex_;
  RelayFaults faults_ LOCKSTEP_GUARDED_BY(mutex_);
  std::mt19937_64 generator_ LOCKSTEP_GUARDED_BY(mutex_);
  std::multimap<Clock::time_point, Datagram> delayed_ LOCKSTEP_GUARDED_BY(mutex_);
  Counters counters_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t newest_forwarded_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep::testing
