#include "lockstep/strategies/core/graph_schedule.h"

#include <algorithm>

namespace lockstep {

bool GraphSchedule::all(bool (GraphRecording::*holds)() const) const {
  return std::all_of(recordings_.begin(), recordings_.end(),
                     [&](const auto& recording) { return (*recording.*holds)(); });
}

bool GraphSchedule::is_captured(const Fingerprint& now) const {
  return is_captured_ && now == captured_ && all(&GraphRecording::is_usable);
}

GraphUse GraphSchedule::plan(const Fingerprint& now) const {
  const bool is_same = is_captured(now);
  if (is_same && all(&GraphRecording::finds_gradients)) return GraphUse::kReplay;
  // A recording that was never replayed uses gradients that do not recur, and the next one would, too.
  const bool is_futile = is_same && !has_replayed_;
  const int runs = now == seen_ ? runs_ : 0;
  return runs == warm_up_runs_ && !is_futile ? GraphUse::kCapture : GraphUse::kCall;
}

void GraphSchedule::begin(const Fingerprint& now, GraphUse use) {
  if (use == GraphUse::kReplay || !(now == seen_)) {
    seen_ = now;
    runs_ = 0;
  }
  if (use == GraphUse::kReplay) has_replayed_ = true;
  if (use == GraphUse::kCall) runs_ = std::min(runs_ + 1, warm_up_runs_);
  if (use != GraphUse::kCapture) return;
  is_captured_ = false;
  has_replayed_ = false;
  for (auto& recording : recordings_) recording.reset();
  captured_ = now;
}

}  // namespace lockstep
