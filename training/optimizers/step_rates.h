#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"

namespace lockstep {

/// Learning rates as the fused operators read them on a GPU: a float32 scalar there for each parameter group
/// and device, so that a captured step follows the schedule.
class StepRates {
 public:
  /// Whether the operators for parameters like this one take their rate from a tensor. On a CPU they would
  /// wait for its value, and float64 parameters would get a rate rounded to float32.
  static bool are_tensors_for(const torch::Tensor& parameter) {
    return !parameter.is_cpu() && parameter.scalar_type() != torch::kDouble;
  }

  /// The tensor for `group` on `device`, holding `rate`.
  const torch::Tensor& get(size_t group, torch::Device device, double rate);
  /// Adds where the tensors lie.
  void describe(Fingerprint& fingerprint) const;
  /// Brings all tensors to `rate_of(group)`.
  void refresh(const std::function<double(size_t group)>& rate_of);

 private:
  struct Rate {
    size_t group;
    torch::Tensor tensor;
    double value;
  };
  static void set(Rate& rate, double value);

  std::vector<Rate> rates_;
};

}  // namespace lockstep
