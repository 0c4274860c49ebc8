#pragma once

#include <cstdint>

namespace lockstep {

/// The linear scaling rule (Goyal et al., "Accurate, Large Minibatch SGD", 2017): k times the examples a
/// step, k times the learning rate, where `learning_rate` is meant for steps of `base_batch_size` examples.
constexpr double scaled_learning_rate(double learning_rate, int64_t global_batch_size,
                                      int64_t base_batch_size) {
  return learning_rate * static_cast<double>(global_batch_size) / static_cast<double>(base_batch_size);
}

}  // namespace lockstep
