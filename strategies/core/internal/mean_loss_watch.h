#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Looks, in the thread that makes it and while it lives, at the first backward: whether it begins at a mean,
/// or at a loss of LibTorch's with reduction Mean, that nothing scales. The loss of a replica function that
/// does is a mean over its own shard. Operators take a few microseconds longer meanwhile. One may live in a
/// thread at a time.
class MeanLossWatch {
 public:
  MeanLossWatch();
  ~MeanLossWatch();
  MeanLossWatch(const MeanLossWatch&) = delete;
  MeanLossWatch& operator=(const MeanLossWatch&) = delete;

  bool saw_backward() const { return state_ != State::kBefore; }
  bool saw_mean() const { return state_ == State::kMean; }

 private:
  /// kInLoss: the loss's own operator, which has the reduction among its arguments, comes next.
  enum class State : uint8_t { kBefore, kAtScalars, kInLoss, kMean, kOther };

  void look(const at::RecordFunction& call);
  void enter_node(const std::string& name);

  State state_ = State::kBefore;
  at::CallbackHandle callback_;
};

}  // namespace lockstep
