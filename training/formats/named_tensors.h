#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Ordered list of named tensors.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

}  // namespace lockstep
