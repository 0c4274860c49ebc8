#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <vector>

namespace lockstep {

struct LayerWeightsOptions {
  std::vector<int64_t> shape;
  bool has_bias = false;  ///< of shape[0] numbers
};

/// A weight, and a bias if there is one, without values: the model that holds it initializes them. Layers
/// that initialize themselves would do so once for each level of modules above them whenever a model is
/// cloned.
class LayerWeightsImpl : public torch::nn::Cloneable<LayerWeightsImpl> {
 public:
  explicit LayerWeightsImpl(LayerWeightsOptions options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;
  torch::Tensor bias;  ///< undefined if there is none

 private:
  LayerWeightsOptions options_;
};
TORCH_MODULE(LayerWeights);

}  // namespace lockstep
