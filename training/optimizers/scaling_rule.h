#pragma once

#include <cstdint>

namespace lockstep {

/// Returns the learning rate for steps of `global_batch_size` examples, given the `learning_rate` for steps
/// of `base_batch_size` examples. The linear scaling rule (Goyal et al., "Accurate, Large Minibatch SGD",
/// 2017): k times the examples per step take k times the learning rate.
constexpr double scaled_learning_rate(double learning_rate, int64_t global_batch_size,
                                      int64_t base_batch_size) {
  return learning_rate * static_cast<double>(global_batch_size) / static_cast<double>(base_batch_size);
}

}  // namespace lockstep
