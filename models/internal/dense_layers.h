#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Creates dense layers with the given numbers of units on `inputs` numbers. ReLU follows each layer,
/// including the last if `has_last_relu`. Uses PyTorch's default initialisation. `model` is the caller's name
/// for error messages. Throws std::invalid_argument if there are no layers, or less than one input or unit.
torch::nn::Sequential dense_layers(const std::string& model, int64_t inputs,
                                   const std::vector<int64_t>& units, bool has_last_relu);

}  // namespace lockstep
