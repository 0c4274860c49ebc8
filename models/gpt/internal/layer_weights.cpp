#include "lockstep/models/gpt/internal/layer_weights.h"

#include <ostream>
#include <utility>

namespace lockstep {

LayerWeightsImpl::LayerWeightsImpl(LayerWeightsOptions options) : options_(std::move(options)) {
  reset();
}

void LayerWeightsImpl::reset() {
  weight = register_parameter("weight", torch::empty(options_.shape));
  if (options_.has_bias) bias = register_parameter("bias", torch::empty({options_.shape.front()}));
}

void LayerWeightsImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::LayerWeights(" << torch::IntArrayRef(options_.shape)
         << (options_.has_bias ? ", bias" : "") << ")";
}

}  // namespace lockstep
