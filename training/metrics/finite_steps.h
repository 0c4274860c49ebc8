#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// Counts a replica's steps before the first one whose losses are not all finite, without waiting for the
/// device. A loop that reads it a few times a second still learns which step it was.
///
/// Example:
///
///     FiniteSteps finite;
///     finite.update(losses);
///     bool is_broken = finite.count() < finite.steps();
class FiniteSteps {
 public:
  void update(const torch::Tensor& losses);
  void reset();

  /// Returns the number of updates before the first that was not finite, or of all if there is none. Waits
  /// for the device.
  int64_t count() const { return count_.defined() ? count_.item<int64_t>() : 0; }
  /// Returns the number of all updates. Waits for the device.
  int64_t steps() const { return steps_.defined() ? steps_.item<int64_t>() : 0; }

  /// Returns {count(), steps()} as int64 scalars on the device.
  std::vector<torch::Tensor> state() const;
  /// Continues from a state, which is on the replica's device and belongs to this object from now on.
  void restore(std::vector<torch::Tensor> state);

  /// Calls `visit(tensor)` for each tensor of the state. update() and reset() change these in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(unbroken_);
    visit(count_);
    visit(steps_);
  }

 private:
  torch::Tensor unbroken_;
  torch::Tensor count_;
  torch::Tensor steps_;  // on the device too, because a CUDA graph replays no host code
};

/// Number of a replica's steps, and of those before the first whose loss was not finite.
struct FiniteCount {
  int64_t replica = 0;
  std::string device;
  int64_t good = 0;  ///< Equals `steps` if every loss was finite.
  int64_t steps = 0;
};

/// Returns the counts of this process's replicas, or with `all_workers` those of all replicas, which is a
/// collective. Waits for the devices. Throws as Strategy::gather() does.
std::vector<FiniteCount> count_finite(const PerReplica<FiniteSteps>& steps, Strategy& strategy,
                                      bool all_workers);

}  // namespace lockstep
