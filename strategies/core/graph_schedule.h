#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {

/// Use of a captured function in one run.
enum class GraphUse : uint8_t { kCall, kCapture, kReplay };

/// Decides when a captured function is called, captured and replayed, and holds one recording for each
/// replica. After `warm_up_runs` calls in a row with equal fingerprints, the next run with that fingerprint
/// is captured. Later runs with it are replayed if the gradients are still where the recording left them. All
/// other runs call the function.
///
/// Example:
///
///     GraphSchedule schedule(/*num_replicas=*/1, /*warm_up_runs=*/3);
///     Fingerprint now;
///     now.add_layout(batch);
///     const GraphUse use = schedule.plan(now);
///     schedule.begin(now, use);
class GraphSchedule {
 public:
  GraphSchedule(int num_replicas, int warm_up_runs)
      : recordings_(static_cast<size_t>(num_replicas)), warm_up_runs_(warm_up_runs) {}

  /// Returns what a run with this fingerprint can do at most: a replay, else a capture, else a call.
  GraphUse plan(const Fingerprint& now) const;
  /// Notes what the run with this fingerprint does, which is at most plan(), or a capture in place of a
  /// replay. For a capture, drops the recordings to make new ones.
  void begin(const Fingerprint& now, GraphUse use);
  /// Call this once all replicas have recorded their calls.
  void end_capture() { is_captured_ = true; }
  std::shared_ptr<GraphRecording>& recording(int replica) {
    return recordings_[static_cast<size_t>(replica)];
  }

 private:
  bool all(bool (GraphRecording::*holds)() const) const;
  bool is_captured(const Fingerprint& now) const;

  std::vector<std::shared_ptr<GraphRecording>> recordings_;
  const int warm_up_runs_;
  Fingerprint captured_;
  Fingerprint seen_;
  int runs_ = 0;  // calls in a row with the fingerprint seen_
  bool is_captured_ = false;
  bool has_replayed_ = false;  // whether the current recordings have been replayed
};

}  // namespace lockstep
