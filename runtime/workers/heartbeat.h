#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/udp_socket.h"
#include "lockstep/runtime/workers/failure_detector.h"
#include "lockstep/runtime/workers/heartbeat_message.h"

namespace lockstep {

/// Another process of the job, and where its heartbeat listens.
struct Peer {
  int rank = 0;
  std::string name;  ///< for messages: "worker 1 (10.0.0.2)"
  std::string host;  ///< an address or a host name
  int port = 0;
};

struct HeartbeatOptions {
  int rank = 0;
  int world_size = 1;
  JobToken token;            ///< the same in all processes of the job
  uint64_t incarnation = 0;  ///< differs from one start of the job to the next
  /// The only address that it listens on. It decides between IPv4 and IPv6 for the peers, too.
  std::string bind_address = "127.0.0.1";
  std::chrono::milliseconds interval{100};  ///< between two messages to a peer
  /// Of silence, until a peer is given up. Where half of the messages are lost and the others come up to 0.5
  /// s late, a false alarm takes 30 losses in a row: once in three years of such a link.
  std::chrono::milliseconds lost_after{3500};
  /// All peers hold their ports when start() is called: one that nobody holds any more is that of a process
  /// that has ended, even where it was never heard.
  bool are_ports_held = false;
};

struct LostPeer {
  int rank = 0;             ///< this process's own where the others gave it up
  std::string name;         ///< as in Peer, or "rank 3" where that was not given
  std::string reason;       ///< "its process ended", "no sign of life for 3.5 s"
  bool has_failed = false;  ///< it has said so itself
};

/// Finds out that another process of the job was killed, stopped, or cut off, and tells its name.
///
/// The processes exchange small UDP messages, which a lossy link does not hold up: every worker with rank 0,
/// and rank 0 with every worker, which makes it two a worker and interval. Rank 0 announces to all whom it
/// gave up; if rank 0 is lost, every worker finds that by itself. A process that ended is found within an
/// interval, by the ICMP message of its host's kernel; one that was stopped or cut off, or ended where a
/// firewall swallows ICMP, after `lost_after`. FailureDetector has the rules.
///
/// Messages carry a tag under the job's token; others are dropped unread, and counted. Their content is not
/// secret.
///
/// The calls are for one thread, except lost(), counters() and tell_failure(), which any may call.
class Heartbeat {
 public:
  /// Binds to a port of the system's choice; peers are not heard before start(), but kept.
  /// `on_lost` is called once, from the heartbeat's thread, for the first lost peer, when it has been
  /// announced; it may be empty. It must not block, throw, or call stop().
  /// Throws std::system_error naming the address, InvalidArgument for options out of range.
  Heartbeat(HeartbeatOptions options, std::function<void(const LostPeer&)> on_lost);
  /// stop()
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Where it listens, to be told to the others.
  int port() const { return socket_.port(); }

  /// Starts the thread. Rank 0 needs all others; another rank needs rank 0, and the rest for their names
  /// only. Looks up the hosts' names, which may take seconds. Throws std::system_error naming host:port,
  /// InvalidArgument for missing, repeated or impossible peers and a second call.
  void start(std::vector<Peer> peers);

  std::optional<LostPeer> lost() const;

  /// Tells the others that this process has failed, which makes it lost to them. Does not block.
  void tell_failure();

  struct Counters {
    uint64_t sent = 0;
    uint64_t received = 0;  ///< of this job, and new
    uint64_t outdated = 0;  ///< of this job, but duplicated, overtaken or replayed
    uint64_t rejected = 0;  ///< all other: foreign bytes, a wrong token, another job
  };
  Counters counters() const;

  /// Says goodbye, so that the others do not take this process for lost, and ends the thread. Blocks until
  /// the peers that live have answered, for a second at most. A process that fails where the others do not
  /// expect it had better end without.
  void stop();

 private:
  struct Contact {
    int rank;
    SocketAddress address;
  };

  void run();
  void say_goodbye();
  void receive(std::chrono::steady_clock::time_point now);
  void answer(const HeartbeatMessage& message);
  const Contact& contact_of(int rank) const;
  void send(const Contact& contact, HeartbeatKind kind);
  void send_to_all();
  void publish(const FailureDetector::Loss& loss);
  void add_counters();
  std::string name_of(int rank) const;
  std::string reason_text(const FailureDetector::Loss& loss) const;

  const HeartbeatOptions options_;
  const std::function<void(const LostPeer&)> on_lost_;
  UdpSocket socket_;
  std::vector<Peer> peers_;
  std::vector<Contact> contacts_;  // those it sends to, ordered by rank
  // The thread's own, once it runs.
  std::optional<FailureDetector> detector_;
  Counters counted_;  // since it last added to counters_
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::optional<LostPeer> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  Counters counters_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep
