#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/udp_socket.h"
#include "lockstep/runtime/workers/failure_detector.h"
#include "lockstep/runtime/workers/heartbeat_message.h"

namespace lockstep {

/// Another process of the job, and the address of its heartbeat.
struct Peer {
  int rank = 0;
  std::string name;  ///< name in messages: "worker 1 (10.0.0.2)"
  std::string host;  ///< address or host name
  int port = 0;
  std::string session{};  ///< its Heartbeat::session()
};

struct HeartbeatOptions {
  int rank = 0;
  int world_size = 1;
  JobToken token;            ///< the same in all processes of the job
  uint64_t incarnation = 0;  ///< differs between starts of the job
  /// The only address to listen on. It also decides whether peers are reached by IPv4 or IPv6.
  std::string bind_address = "127.0.0.1";
  std::chrono::milliseconds interval{100};  ///< time between two messages to a peer
  /// Silence after which a peer is given up. If half of the messages are lost and the others arrive up to 0.5
  /// s late, a false alarm takes 30 losses in a row: about once in three years of such a link.
  std::chrono::milliseconds lost_after{3500};
  /// True if all peers hold their ports when start() is called. A port that nobody holds then means that its
  /// process has ended, even if it was never heard from.
  bool are_ports_held = false;
};

struct LostPeer {
  int rank = 0;             ///< this process's own rank if the others gave it up
  std::string name;         ///< as in Peer, or "rank 3" if no name was given
  std::string reason;       ///< "its process ended", "no sign of life for 3.5 s"
  bool has_failed = false;  ///< true if it reported its failure itself
};

/// Detects that another process of the job was killed, stopped or cut off, and names it.
///
/// Processes exchange small UDP messages, which a lossy link does not hold up: every worker with rank 0 and
/// rank 0 with every worker, two messages per worker and interval. Rank 0 announces to all which processes it
/// gave up; if rank 0 is lost, every worker detects that itself. A process that ended is detected within one
/// interval, by the ICMP message of its host's kernel. A process that was stopped or cut off, or that ended
/// behind a firewall that drops ICMP, is detected after `lost_after`. See FailureDetector for the rules.
///
/// Messages are encrypted and authenticated with keys that are derived from the job's token and from random
/// text of this start of the job: see HeartbeatSeal. All others are dropped unread, and counted: foreign
/// bytes, changed messages, and messages that were recorded in another job or start. Reports of a host's
/// kernel (ICMP) cannot be authenticated.
///
/// Call it from one thread, except lost(), rounds(), counters() and tell_failure(), which are thread-safe.
class Heartbeat {
 public:
  /// Binds to a port of the system's choice. Messages that arrive before start() are kept and read then.
  /// `on_lost` may be empty; otherwise it is called once, from the heartbeat's thread, for the first lost
  /// peer, after it has been announced. It must not block, throw or call stop(). Throws std::system_error
  /// naming the address, and InvalidArgument if an option is out of range.
  Heartbeat(HeartbeatOptions options, std::function<void(const LostPeer&)> on_lost);
  /// Calls stop().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Returns the port it listens on, to be told to the others.
  int port() const { return socket_.port(); }
  /// Returns random text, to be told to the others together with the port: see HeartbeatSender.
  const std::string& session() const { return session_; }

  /// Starts the thread. Rank 0 needs all other ranks as peers; another rank needs rank 0, and the rest only
  /// for their names. Looks up the peers' host names, which can take seconds. Throws std::system_error naming
  /// host:port, and InvalidArgument for missing, repeated or impossible peers, or if called twice.
  void start(std::vector<Peer> peers);

  std::optional<LostPeer> lost() const;

  /// Returns how many times it has looked for lost peers, which it does once in an interval, or less often if
  /// the machine is busy. Returns nothing once it has stopped looking.
  std::optional<uint64_t> rounds() const;

  /// Tells the others that this process has failed, so that they treat it as lost. Does not block.
  void tell_failure();

  struct Counters {
    uint64_t sent = 0;
    uint64_t received = 0;  ///< new messages of this job
    uint64_t outdated = 0;  ///< messages of this job that were duplicated, overtaken or replayed
    uint64_t rejected = 0;  ///< all others: foreign bytes, a wrong token, another job or start
  };
  Counters counters() const;

  /// Says goodbye, so that the others do not treat this process as lost, and ends the thread. Blocks until
  /// all live peers have answered, for at most a second. A process that fails unexpectedly should end without
  /// calling stop().
  void stop();

 private:
  struct Contact {
    int rank;
    SocketAddress address;
    HeartbeatSeal seal;
  };

  void run();
  void say_goodbye();
  HeartbeatSeal seal_of(int rank, const std::string& session, const std::string& hub_session) const;
  void receive(std::chrono::steady_clock::time_point now);
  std::optional<HeartbeatMessage> open(std::span<const uint8_t> packet);
  void answer(const HeartbeatMessage& message);
  Contact* contact_of(int rank);
  void send(const Contact& contact, HeartbeatKind kind);
  void send_to_all();
  void publish(const FailureDetector::Loss& loss);
  void add_counters();
  void end_round();
  std::string name_of(int rank) const;
  std::string reason_text(const FailureDetector::Loss& loss) const;

  const HeartbeatOptions options_;
  const std::function<void(const LostPeer&)> on_lost_;
  UdpSocket socket_;
  const std::string session_;
  std::vector<Peer> peers_;
  std::vector<Contact> contacts_;  // peers it sends to, ordered by rank
  // Used only by the thread, once it runs.
  std::optional<FailureDetector> detector_;
  std::optional<HeartbeatSeal> seal_;
  Counters counted_;  // since they were last added to counters_
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::optional<LostPeer> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  Counters counters_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<uint64_t> rounds_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lockstep
