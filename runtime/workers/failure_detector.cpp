#include "lockstep/runtime/workers/failure_detector.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Well above the delay that a busy machine adds to a wait, and well below the shortest silence that counts.
constexpr milliseconds kLeastPause{500};

// Messages sent to a process before or during a pause have arrived by then.
constexpr milliseconds kLongestDelay{1000};

}  // namespace

FailureDetector::FailureDetector(const FailureDetectorOptions& options, TimePoint now)
    : options_(options),
      peers_(static_cast<size_t>(options.rank == 0 ? options.world_size - 1 : 1)),
      next_tick_(now) {}

bool FailureDetector::watches(int rank) const {
  return is_hub() ? rank >= 1 && rank < options_.world_size : rank == 0;
}

void FailureDetector::wake(TimePoint now) {
  const auto late = now - next_tick_;
  if (late <= kLeastPause) return;
  for (PeerState& peer : peers_) peer.heard += late;
  pause_ = std::chrono::duration_cast<milliseconds>(late);
  resumed_ = now;
  next_tick_ = now;
}

milliseconds FailureDetector::recent_pause(TimePoint now) const {
  // Every wrong conclusion that the pause could cause shows within this time.
  return now - resumed_ <= options_.lost_after + options_.interval ? pause_ : milliseconds{0};
}

FailureDetector::Hearing FailureDetector::hear(const HeartbeatMessage& message, TimePoint now) {
  if (!watches(message.sender)) return Hearing::kForeign;
  if (message.receiver != options_.rank && message.receiver != HeartbeatMessage::kEveryRank) {
    return Hearing::kForeign;
  }
  if (message.lost < HeartbeatMessage::kNoRank || message.lost >= options_.world_size) {
    return Hearing::kForeign;
  }
  PeerState& sender = peer(message.sender);
  if (message.sequence <= sender.sequence) return Hearing::kOutdated;
  sender.sequence = message.sequence;
  sender.heard = now;
  if (message.kind == HeartbeatKind::kLeavingHeard) sender.heard_farewell = true;
  if (sender.state == State::kUnheard) sender.state = State::kAlive;
  if (message.lost != HeartbeatMessage::kNoRank) {
    hear_verdict(message, now);
  } else if (now - resumed_ > kLongestDelay) {
    // Whatever happened to this process, the sender has not given up on it.
    pause_ = milliseconds{0};
  }
  if (message.kind == HeartbeatKind::kLeaving && sender.state == State::kAlive) sender.state = State::kLeft;
  return Hearing::kNew;
}

void FailureDetector::hear_verdict(const HeartbeatMessage& message, TimePoint now) {
  if (leaving_ || failed_) return;
  if (!is_hub()) {
    if (message.lost == options_.rank) {
      note_loss(options_.rank, LossReason::kFencedOff, now);
    } else if (message.lost == message.sender) {
      give_up(message.lost, message.reason, now);
    } else {
      note_loss(message.lost, message.reason, now);
    }
    return;
  }
  if (message.lost == message.sender) return give_up(message.sender, message.reason, now);
  // The hub judges every rank but itself.
  if (message.lost != options_.rank) return;
  if (recent_pause(now) >= options_.lost_after / 2) {
    note_loss(options_.rank, LossReason::kFencedOff, now);
  } else {
    give_up(message.sender, LossReason::kCutOff, now);
  }
}

void FailureDetector::refuse(int rank) {
  if (!watches(rank)) return;
  // A peer not yet heard from may not have held its port yet.
  if (peer(rank).state == State::kUnheard && !options_.are_ports_held && !leaving_) return;
  if (!peer(rank).refused) refused_.push_back(rank);
  peer(rank).refused = true;
}

bool FailureDetector::tick(TimePoint now) {
  for (const int rank : refused_) {
    if (peer(rank).state == State::kUnheard) peer(rank).state = State::kAlive;  // it was alive before
    give_up(rank, LossReason::kEnded, now);
  }
  refused_.clear();
  if (now < next_tick_) return false;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (watches(rank) && now - peer(rank).heard > options_.lost_after) {
      give_up(rank, LossReason::kSilent, now);
    }
  }
  next_tick_ += options_.interval;
  // A late tick is not made up for: the peers need a message from time to time, not a number of them.
  if (next_tick_ <= now) next_tick_ = now + options_.interval;
  return true;
}

void FailureDetector::give_up(int rank, LossReason reason, TimePoint now) {
  if (leaving_ || peer(rank).state != State::kAlive) return;
  if (recent_pause(now) >= options_.lost_after) {
    note_loss(options_.rank, LossReason::kFencedOff, now);
    return;
  }
  peer(rank).state = State::kLost;
  peer(rank).reason = reason;
  note_loss(rank, reason, now);
}

void FailureDetector::note_loss(int rank, LossReason reason, TimePoint now) {
  if (!loss_) loss_ = Loss{rank, reason, recent_pause(now)};
}

HeartbeatMessage FailureDetector::message_to(int receiver, HeartbeatKind kind) {
  HeartbeatMessage message;
  message.kind = kind;
  message.sequence = ++sequence_;
  message.sender = options_.rank;
  message.receiver = receiver;
  if (has_given_up(receiver)) {
    // A rank that hears of its own loss is fenced off; a hub that hears of its own loss knows who is cut off.
    message.lost = receiver;
    message.reason = peer(receiver).reason;
  } else if (failed_) {
    message.lost = options_.rank;
    message.reason = LossReason::kFailed;
  } else if (loss_) {
    message.lost = loss_->rank;
    message.reason = loss_->reason;
  }
  return message;
}

bool FailureDetector::awaits_farewell(int rank) const {
  if (!watches(rank)) return false;
  const PeerState& state = peer(rank);
  return state.state != State::kLeft && state.state != State::kLost && !state.refused &&
         !state.heard_farewell;
}

}  // namespace lockstep
