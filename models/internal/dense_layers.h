#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Dense layers of these many units each on `inputs` numbers, with ReLU after each but the last, or after
/// that too; PyTorch's default initialisation. `model` names who asks. Throws std::invalid_argument for less
/// than one input or unit, and without layers.
torch::nn::Sequential dense_layers(const std::string& model, int64_t inputs,
                                   const std::vector<int64_t>& units, bool has_last_relu);

}  // namespace lockstep
