#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <utility>
#include <vector>

namespace lockstep {

/// Counts a replica's steps up to the first whose losses are not all finite, without waiting for the device:
/// a loop that looks a few times a second still learns which step it was.
class FiniteSteps {
 public:
  void update(const torch::Tensor& losses) {
    const torch::NoGradGuard no_grad;
    const auto finite = losses.isfinite().all();
    if (!unbroken_.defined()) {
      unbroken_ = torch::ones_like(finite);
      count_ = torch::zeros_like(finite, torch::kLong);
      steps_ = torch::zeros_like(count_);
    }
    unbroken_.logical_and_(finite);
    count_.add_(unbroken_);
    steps_.add_(1);
  }

  void reset() {
    if (!unbroken_.defined()) return;
    const torch::NoGradGuard no_grad;
    unbroken_.fill_(true);
    count_.zero_();
    steps_.zero_();
  }

  /// Updates before the first that was not finite, all of them if there is none. Waits for the device.
  int64_t count() const { return count_.defined() ? count_.item<int64_t>() : 0; }
  /// All updates. Waits for the device.
  int64_t steps() const { return steps_.defined() ? steps_.item<int64_t>() : 0; }

  /// {count(), steps()} as int64 scalars, on the device.
  std::vector<torch::Tensor> state() const {
    if (!count_.defined()) return {torch::zeros({}, torch::kLong), torch::zeros({}, torch::kLong)};
    return {count_, steps_};
  }
  /// Goes on from a state, which lies on the replica's device and is its to keep.
  void restore(std::vector<torch::Tensor> state) {
    count_ = std::move(state[0]);
    steps_ = std::move(state[1]);
    unbroken_ = count_.eq(steps_);
  }

  /// Calls `visit(tensor)` for the tensors of the state, which are changed in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(unbroken_);
    visit(count_);
    visit(steps_);
  }

 private:
  torch::Tensor unbroken_;
  torch::Tensor count_;
  torch::Tensor steps_;  // on the device too: a CUDA graph repeats nothing on the host
};

}  // namespace lockstep
