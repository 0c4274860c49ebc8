#include "lockstep/models/norm_layer.h"

#include <stdexcept>

#include "lockstep/models/batch_norm.h"

namespace lockstep {

torch::nn::AnyModule make_norm_layer(const NormLayer& norm_layer, int64_t num_features) {
  if (!norm_layer) return torch::nn::AnyModule(BatchNorm(torch::nn::BatchNormOptions(num_features)));
  auto module = norm_layer(num_features);
  if (module.is_empty())
    throw std::invalid_argument("[norm_layer] expected it to make a module, but got an empty one");
  return module;
}

}  // namespace lockstep
