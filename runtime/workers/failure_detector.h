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
  uint64_t incarnation = 0;                    ///< messages of another one are foreign
  std::chrono::milliseconds interval{100};     ///< between two messages to a peer
  std::chrono::milliseconds lost_after{3500};  ///< of silence
  bool are_ports_held = false;                 ///< as in HeartbeatOptions
};

/// Decides which processes of a job are lost: the rules of the heartbeat, without threads, sockets or clock.
///
/// Rank 0 is the hub. It watches every other rank and announces whom it gave up; another rank watches the hub
/// and believes it. Whoever finds that the others gave it up is fenced off: its loss is of its own rank.
///
/// A peer never heard from may not have started, and one that said it leaves is expected to fall silent:
/// neither is ever given up. But where all held their ports from the start, one whose port is refused has
/// ended, heard or not.
///
/// If this process itself did not run for a while, the silence of its peers means nothing: every deadline
/// moves on by that time. After as long as `lost_after` it accuses nobody, since the others have given it up.
///
/// The caller's loop is: wait until next_tick() or for a message; wake(); refuse() and hear() what has come;
/// tick(). For one thread.
class FailureDetector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  enum class Hearing {
    kNew,
    kOutdated,  ///< not newer than what was heard before: duplicated, overtaken or replayed
    kForeign,   ///< of another job, or from or to a rank that it cannot be
  };

  /// `own_pause` is for how long this process did not run shortly before.
  struct Loss {
    int rank;
    LossReason reason;
    std::chrono::milliseconds own_pause;
  };

  FailureDetector(const FailureDetectorOptions& options, TimePoint now);

  TimePoint next_tick() const { return next_tick_; }

  /// To be called first after every wait: finds out whether this process did not run.
  void wake(TimePoint now);

  Hearing hear(const HeartbeatMessage& message, TimePoint now);

  /// The kernel of the peer's host said that no process holds its port. It counts at the next tick() only: a
  /// farewell may have come before it and not be read yet.
  void refuse(int rank);

  /// Gives up who is gone. Returns true if the time of a message to every peer has come.
  bool tick(TimePoint now);

  /// The first; never changes again.
  const std::optional<Loss>& loss() const { return loss_; }

  /// The next message to send to `receiver`, a watched rank or kEveryRank. It tells a rank that was given up
  /// of that, and others of the first loss.
  HeartbeatMessage message_to(int receiver, HeartbeatKind kind);

  bool has_given_up(int rank) const { return watches(rank) && peer(rank).state == State::kLost; }
  /// True once the peer said that it ends on purpose.
  bool has_left(int rank) const { return watches(rank) && peer(rank).state == State::kLeft; }

  /// This process has failed: its messages say so from now on.
  void fail() { failed_ = true; }
  /// This process ends on purpose, and gives up nobody from now on.
  void leave() { leaving_ = true; }
  /// True while the peer may not know yet that this process leaves.
  bool awaits_farewell(int rank) const;

 private:
  enum class State { kUnheard, kAlive, kLeft, kLost };
  struct PeerState {
    State state = State::kUnheard;
    LossReason reason = LossReason::kNone;
    bool refused = false;
    bool heard_farewell = false;
    uint64_t sequence = 0;  // of the newest message heard
    TimePoint heard{};
  };

  bool is_hub() const { return options_.rank == 0; }
  bool watches(int rank) const;
  // The hub's table begins with rank 1; that of another rank holds the hub only.
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
  // The last time that this process did not run.
  std::chrono::milliseconds pause_{0};
  TimePoint resumed_{};
};

}  // namespace lockstep
