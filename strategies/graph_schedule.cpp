#include "lockstep/strategies/graph_schedule.h"

#include <algorithm>

namespace lockstep {

GraphUse GraphSchedule::next(const Fingerprint& now) {
  if (is_captured_ && now == captured_ &&
      std::all_of(recordings_.begin(), recordings_.end(),
                  [](const auto& recording) { return recording->finds_gradients(); })) {
    seen_ = now;
    runs_ = 0;
    return GraphUse::kReplay;
  }
  if (!(now == seen_)) {
    seen_ = now;
    runs_ = 0;
  }
  // A captured call whose gradients are not where it left them: they will be after this one.
  if (runs_ < warm_up_runs_ || (is_captured_ && now == captured_)) {
    ++runs_;
    return GraphUse::kCall;
  }
  return GraphUse::kCapture;
}

void GraphSchedule::begin_capture() {
  is_captured_ = false;
  for (auto& recording : recordings_) recording.reset();
  captured_ = seen_;
}

}  // namespace lockstep
