#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>

namespace lockstep {

/// Makes a model's normalisation of `num_features` channels, anew in each call: a module from
/// [N, num_features, H, W] to the same shape. Its backward must not need its output, which the model changes
/// in place.
using NormLayer = std::function<torch::nn::AnyModule(int64_t num_features)>;

/// What `norm_layer` makes; BatchNorm for an empty function. Throws std::invalid_argument where it makes an
/// empty module.
torch::nn::AnyModule make_norm_layer(const NormLayer& norm_layer, int64_t num_features);

}  // namespace lockstep
