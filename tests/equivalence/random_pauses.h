#pragma once

#include <torch/nn/module.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace lockstep {

/// Has a replica's backward pass wait for up to 3 ms before each gradient. Each seed gives other times, so
/// that replicas reach the sums of gradients in another order.
inline void pause_before_gradients(const torch::nn::Module& model, unsigned seed) {
  const auto random = std::make_shared<std::mt19937>(seed);
  for (const auto& parameter : model.parameters()) {
    parameter.register_hook([random](const torch::Tensor&) {
      std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 3000));
    });
  }
}

}  // namespace lockstep
