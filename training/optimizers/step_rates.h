#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

#include "lockstep/runtime/graphs/fingerprint.h"

namespace lockstep {

/// Learning rates as the fused operators read them on a GPU: a float32 scalar on the device for each
/// parameter group and device, so that a captured step follows the schedule.
///
/// Example:
///
///     StepRates rates;
///     const torch::Tensor& rate = rates.get(/*group=*/0, torch::Device("cuda:0"), 1e-3);
///     rates.refresh([](size_t group) { return 5e-4; });  // `rate` holds 5e-4 now
class StepRates {
 public:
  /// Returns whether the operators for parameters like this one read their rate from a tensor. On a CPU and
  /// for float64 parameters they take a number: on a CPU they would wait for the tensor's value, and float64
  /// parameters would get a rate rounded to float32.
  static bool are_tensors_for(const torch::Tensor& parameter) {
    return !parameter.is_cpu() && parameter.scalar_type() != torch::kDouble;
  }

  /// Returns the tensor for `group` on `device`, which then holds `rate`.
  const torch::Tensor& get(size_t group, torch::Device device, double rate);
  /// Adds the tensors' addresses.
  void describe(Fingerprint& fingerprint) const;
  /// Sets all tensors to `rate_of(group)`.
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
