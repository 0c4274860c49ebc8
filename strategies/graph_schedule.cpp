#include "lockstep/strategies/graph_schedule.h"

#include <algorithm>

namespace lockstep {

GraphUse GraphSchedule::next(const Fingerprint& now) {
  const bool can_replay = is_captured_ && now == captured_ &&
                          std::all_of(recordings_.begin(), recordings_.end(), [](const auto& recording) {
                            return recording->is_usable() && recording->finds_gradients();
                          });
  if (can_replay || !(now == seen_)) {
    seen_ = now;
    runs_ = 0;
  }
  if (can_replay) return GraphUse::kReplay;
  if (runs_ == warm_up_runs_) return GraphUse::kCapture;
  ++runs_;
  return GraphUse::kCall;
}

void GraphSchedule::begin_capture() {
  is_captured_ = false;
  for (auto& recording : recordings_) recording.reset();
  captured_ = seen_;
}

}  // namespace lockstep
