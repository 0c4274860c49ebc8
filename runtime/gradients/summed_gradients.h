#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/gradients/tensor_mark.h"

namespace lockstep {

/// Remembers which gradients hold the last step's sums, to notice a grad() that nobody has zeroed since:
/// after any change of the buckets, too.
class SummedGradients {
 public:
  explicit SummedGradients(size_t num_parameters) : marks_(num_parameters) {}

  void remember(size_t parameter, const at::Tensor& sum) { marks_[parameter] = TensorMark(sum); }
  void forget(size_t parameter) { marks_[parameter] = {}; }

  /// Whether `gradient` still is the sum, after `own_writes` or fewer writes in place: one more was the
  /// zeroing.
  bool contain(size_t parameter, const at::Tensor& gradient, int64_t own_writes) const {
    const TensorMark& mark = marks_[parameter];
    return mark.is(gradient) && mark.writes_to(gradient) <= own_writes;
  }
  /// Whether any grad() is left of those that are remembered, or none is remembered.
  bool are_there(const std::vector<at::Tensor>& parameters) const {
    bool any = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!marks_[i].is_set()) continue;
      if (parameters[i].grad().defined()) return true;
      any = true;
    }
    return !any;
  }
  /// Takes the writes so far for no zeroing.
  void excuse_writes() {
    for (TensorMark& mark : marks_) mark.excuse_writes();
  }

 private:
  std::vector<TensorMark> marks_;
};

}  // namespace lockstep
