#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep {

/// Returns a generator of `device` of its own, whose seed is yet to be set. If a plugin makes none, it may be
/// a generator of the CPU, which operators on `device` do not take.
at::Generator new_generator(c10::Device device);

/// Returns a generator's state. Other threads may draw from the generator meanwhile.
at::Tensor random_state_of(at::Generator generator);
/// Sets a generator's state. Other threads may draw from the generator meanwhile. Throws c10::Error for a
/// state that is none of this kind of generator.
void set_random_state(at::Generator generator, const at::Tensor& state);

/// The state of the process's default generators: the CPU's, and that of each accelerator listed.
class RandomState {
 public:
  /// Saves the current state.
  explicit RandomState(const std::vector<torch::Device>& devices);
  /// Restores the saved state.
  void restore() const;

 private:
  std::vector<std::pair<torch::Device, at::Tensor>> states_;
};

/// Restores the process's random state on destruction.
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
