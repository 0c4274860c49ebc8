#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {

/// What a run does with a captured function.
enum class GraphUse : uint8_t { kCall, kCapture, kReplay };

/// A captured function's recordings, one a replica, and when they are made and replayed: after some calls in
/// a row that a graph would take over the same from, the next one is captured, and replayed where that is the
/// same again and the gradients are where it left them. Other runs call the function.
class GraphSchedule {
 public:
  GraphSchedule(int num_replicas, int warm_up_runs)
      : recordings_(static_cast<size_t>(num_replicas)), warm_up_runs_(warm_up_runs) {}

  /// Whether what is captured finds all that it needs, but for what a graph took over.
  bool is_ready() const;
  /// `now`: what a graph would take over in this run. `may_replay` false: a graph would find others without.
  GraphUse next(const Fingerprint& now, bool may_replay = true);
  /// Drops the recordings, for new ones. What is captured next is what next() was told last.
  void begin_capture();
  /// All replicas have recorded their calls.
  void end_capture() { is_captured_ = true; }
  std::shared_ptr<GraphRecording>& recording(int replica) {
    return recordings_[static_cast<size_t>(replica)];
  }

 private:
  bool all(bool (GraphRecording::*holds)() const) const;

  std::vector<std::shared_ptr<GraphRecording>> recordings_;
  const int warm_up_runs_;
  Fingerprint captured_;
  Fingerprint seen_;
  int runs_ = 0;  // calls in a row that have seen the same
  bool is_captured_ = false;
  bool has_replayed_ = false;  // what is captured
};

}  // namespace lockstep
