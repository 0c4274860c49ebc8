#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep {

/// The state of the process's default generators: the CPU's, and that of a GPU where one is named.
class RandomState {
 public:
  /// Takes the present state.
  explicit RandomState(const std::vector<torch::Device>& devices);
  /// Puts it back.
  void restore() const;

 private:
  std::vector<std::pair<torch::Device, at::Tensor>> states_;
};

/// Puts the process's random state back when it goes.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(torch::Device device) : state_({device}) {}
  ~RandomStateGuard() { state_.restore(); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  RandomState state_;
};

}  // namespace lockstep
