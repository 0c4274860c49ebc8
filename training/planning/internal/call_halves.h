#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/training/planning/internal/rank_allocations.h"

namespace lockstep {

/// The memory of one call's backward in two halves, in bytes for one number of examples: see RecordedHalves.
struct CallHalves {
  bool are_apart = false;
  bool needs_input = false;
  bool keeps_output_gradient = false;
  int64_t saved = 0;
  int64_t gradients = 0;
  int64_t most_in_first = 0;
  int64_t most_in_second = 0;
};

/// Computes `function(x)` and goes backward through it in two halves, as a stage of a pipeline does, with a
/// gradient of ones. `has_input`: whether the first half computes a gradient of `x`. Returns the result
/// without history. Adds to no grad(). `ranks` are those that do the same at the same time; null: there are
/// none.
at::Tensor run_halves(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x,
                      bool has_input, const std::vector<at::Tensor>& parameters,
                      const std::shared_ptr<RankAllocations>& ranks, CallHalves& halves);

}  // namespace lockstep
