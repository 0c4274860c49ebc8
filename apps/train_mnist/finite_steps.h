#pragma once

#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep::apps {

/// Counts a replica's steps up to the first whose losses are not all finite, without waiting for the device:
/// a loop that looks a few times a second still learns which step it was.
class FiniteSteps {
 public:
  void update(const torch::Tensor& losses) {
    const torch::NoGradGuard no_grad;
    const auto finite = losses.isfinite().all();
    unbroken_ = unbroken_.defined() ? unbroken_.logical_and_(finite) : finite;
    count_ = count_.defined() ? count_.add_(unbroken_) : unbroken_.to(torch::kLong);
    ++steps_;
  }

  void reset() { *this = {}; }

  /// Updates before the first that was not finite, all of them if there is none. Waits for the device.
  int64_t count() const { return count_.defined() ? count_.item<int64_t>() : 0; }
  int64_t steps() const { return steps_; }

 private:
  torch::Tensor unbroken_;
  torch::Tensor count_;
  int64_t steps_ = 0;
};

}  // namespace lockstep::apps
