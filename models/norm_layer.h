#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>

namespace lockstep {

/// Makes a new normalization module for `num_features` channels in each call. The module maps [N,
/// num_features, H, W] to the same shape. Its backward must not need its output, which the model changes in
/// place.
using NormLayer = std::function<torch::nn::AnyModule(int64_t num_features)>;

/// Returns the module that `norm_layer` makes, or BatchNorm if the function is empty. Throws
/// std::invalid_argument if it makes an empty module.
torch::nn::AnyModule make_norm_layer(const NormLayer& norm_layer, int64_t num_features);

}  // namespace lockstep
