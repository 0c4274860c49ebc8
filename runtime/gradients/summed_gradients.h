#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/gradients/tensor_mark.h"

namespace lockstep {

/// Remembers which gradients hold the last step's sums, to detect a grad() that was not zeroed since, even if
/// the buckets have changed.
class SummedGradients {
 public:
  explicit SummedGradients(size_t num_parameters) : marks_(num_parameters) {}

  void remember(size_t parameter, const at::Tensor& sum) { marks_[parameter] = TensorMark(sum); }
  void forget(size_t parameter) { marks_[parameter] = {}; }

  /// Returns true if `gradient` still is the sum, that is, has had at most `own_writes` in-place writes; one
  /// more means that it was zeroed.
  bool contain(size_t parameter, const at::Tensor& gradient, int64_t own_writes) const {
    const TensorMark& mark = marks_[parameter];
    return mark.is(gradient) && mark.writes_to(gradient) <= own_writes;
  }
  /// Returns true if any remembered gradient is still defined, or if none is remembered.
  bool are_there(const std::vector<at::Tensor>& parameters) const {
    bool any = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!marks_[i].is_set()) continue;
      if (parameters[i].grad().defined()) return true;
      any = true;
    }
    return !any;
  }
  /// Ignores the writes so far: they do not count as zeroing.
  void excuse_writes() {
    for (TensorMark& mark : marks_) mark.excuse_writes();
  }

 private:
  std::vector<TensorMark> marks_;
};

}  // namespace lockstep
