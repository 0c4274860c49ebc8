#pragma once

#include <cstdint>

namespace lockstep::benchmarks {

/// The work of one training step: MobileNetV2 with 10 classes, random images, Adam.
struct Workload {
  int64_t image_size = 64;
  int64_t global_batch_size = 64;
  /// Average pooling, dense 512, dense 10 after the convolutions, instead of one dense layer.
  bool dense_head = false;
};

}  // namespace lockstep::benchmarks
