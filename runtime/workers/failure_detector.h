#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/runtime/workers/heartbeat_message.h"

namespace lockstep {

struct FailureDetectorOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds interval{100};     ///< time between two messages to a peer
  std::chrono::milliseconds lost_after{3500};  ///< silence after which a peer is given up
  bool are_ports_held = false;                 ///< see HeartbeatOptions
};

/// Decides which processes of a job are lost. Contains the rules of the heartbeat, without threads, sockets
/// or a clock.
///
/// Rank 0 is the hub. It watches every other rank and announces which it gave up; other ranks watch the hub
/// and believe it. A rank that learns that the others gave it up is fenced off: it reports its own rank as
/// lost.
///
/// A peer that was never heard from may not have started, and one that announced its leaving is expected to
/// fall silent: neither is given up. But if all peers held their ports from the start, a peer whose port is
/// refused has ended, even if it was never heard from.
///
/// If this process itself did not run for a while, its peers' silence means nothing: every deadline moves by
/// that time. After a pause of `lost_after` or more it gives up nobody, since the others have given it up.
///
/// The caller's loop: wait until next_tick() or a message; call wake(); call refuse() and hear() for
/// everything received; call tick(). Not thread-safe.
class FailureDetector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  enum class Hearing {
    kNew,
    kOutdated,  ///< not newer than the last one heard: duplicated, overtaken or replayed
    kForeign,   ///< an impossible sender or receiver
  };

  /// `own_pause` is how long this process recently did not run.
  struct Loss {
    int rank;
    LossReason reason;
    std::chrono::milliseconds own_pause;
  };

  FailureDetector(const FailureDetectorOptions& options, TimePoint now);

  TimePoint next_tick() const { return next_tick_; }

  /// Detects whether this process did not run for a while. Call it first after every wait.
  void wake(TimePoint now);

  /// Acts on a message whose seal has been verified, unless it is outdated: then it does nothing, whatever
  /// the message says. Only increasing sequences count, which is stricter than the replay window of IPsec
  /// (RFC 4303, section 3.4.3; RFC 6479). That also lets overtaken messages pass, which nobody needs here,
  /// since a sender repeats itself until it is heard.
  Hearing hear(const HeartbeatMessage& message, TimePoint now);

  /// Records that the kernel of the peer's host reported that no process holds its port. Takes effect at the
  /// next tick(), since a farewell that came earlier may not have been read yet.
  void refuse(int rank);

  /// Gives up lost peers. Returns true if it is time to send a message to every peer.
  bool tick(TimePoint now);

  /// Returns the first loss, which never changes, or nullopt.
  const std::optional<Loss>& loss() const { return loss_; }

  /// Returns the next message to send to `receiver`, a watched rank or kEveryRank. It tells a rank that was
  /// given up so, and others of the first loss.
  HeartbeatMessage message_to(int receiver, HeartbeatKind kind);

  bool has_given_up(int rank) const { return watches(rank) && peer(rank).state == State::kLost; }
  /// Returns true once the peer has announced that it ends on purpose.
  bool has_left(int rank) const { return watches(rank) && peer(rank).state == State::kLeft; }

  /// Marks this process as failed; its messages say so from now on.
  void fail() { failed_ = true; }
  /// Marks this process as leaving on purpose; it gives up nobody from now on.
  void leave() { leaving_ = true; }
  /// Returns true while the peer may not yet know that this process leaves.
  bool awaits_farewell(int rank) const;

 private:
  enum class State { kUnheard, kAlive, kLeft, kLost };
  struct PeerState {
    State state = State::kUnheard;
    LossReason reason = LossReason::kNone;
    bool refused = false;
    bool heard_farewell = false;
    uint64_t sequence = 0;  // sequence of the newest message heard; the first one has 1
    TimePoint heard{};
  };

  bool is_hub() const { return options_.rank == 0; }
  bool watches(int rank) const;
  // The hub's table begins with rank 1; the table of another rank holds only the hub.
  const PeerState& peer(int rank) const { return peers_[static_cast<size_t>(is_hub() ? rank - 1 : 0)]; }
  PeerState& peer(int rank) { return peers_[static_cast<size_t>(is_hub() ? rank - 1 : 0)]; }
  std::chrono::milliseconds recent_pause(TimePoint now) const;
  void hear_verdict(const HeartbeatMessage& message, TimePoint now);
  void give_up(int rank, LossReason reason, TimePoint now);
  void note_loss(int rank, LossReason reason, TimePoint now);

  const FailureDetectorOptions options_;
  std::vector<PeerState> peers_;
  std::vector<int> refused_;  // since the last tick
  TimePoint next_tick_;
  std::optional<Loss> loss_;
  uint64_t sequence_ = 0;
  bool failed_ = false;
  bool leaving_ = false;
  // The last time this process did not run.
  std::chrono::milliseconds pause_{0};
  TimePoint resumed_{};
};

}  // namespace lockstep
