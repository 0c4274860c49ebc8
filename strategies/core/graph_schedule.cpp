#include "lockstep/strategies/core/graph_schedule.h"

#include <algorithm>

namespace lockstep {

bool GraphSchedule::all(bool (GraphRecording::*holds)() const) const {
  return std::all_of(recordings_.begin(), recordings_.end(),
                     [&](const auto& recording) { return (*recording.*holds)(); });
}

bool GraphSchedule::is_ready() const {
  return is_captured_ && all(&GraphRecording::is_usable) && all(&GraphRecording::finds_gradients);
}

GraphUse GraphSchedule::next(const Fingerprint& now, bool may_replay) {
  const bool is_same = is_captured_ && now == captured_ && all(&GraphRecording::is_usable);
  const bool can_replay = is_same && may_replay && all(&GraphRecording::finds_gradients);
  if (can_replay || !(now == seen_)) {
    seen_ = now;
    runs_ = 0;
  }
  if (can_replay) {
    has_replayed_ = true;
    return GraphUse::kReplay;
  }
  // A recording that was never replayed uses gradients that do not recur, and the next one would, too.
  const bool is_futile = is_same && !has_replayed_;
  if (runs_ == warm_up_runs_ && !is_futile) return GraphUse::kCapture;
  runs_ = std::min(runs_ + 1, warm_up_runs_);
  return GraphUse::kCall;
}

void GraphSchedule::begin_capture() {
  is_captured_ = false;
  has_replayed_ = false;
  for (auto& recording : recordings_) recording.reset();
  captured_ = seen_;
}

}  // namespace lockstep
