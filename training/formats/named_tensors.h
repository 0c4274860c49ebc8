#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Tensors by name, in an order of their own.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

}  // namespace lockstep
