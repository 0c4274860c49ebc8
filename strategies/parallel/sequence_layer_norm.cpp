#include "lockstep/strategies/parallel/sequence_layer_norm.h"

#include <ATen/Functions.h>

#include <ostream>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kSequenceNorm = "SequenceLayerNorm";

const torch::nn::LayerNormOptions& options_of_norm(const torch::nn::LayerNorm& whole) {
  if (whole.is_empty())
    throw InvalidArgument("[SequenceLayerNorm] expected a layer norm, but got an empty one");
  return whole->options;
}

}  // namespace

SequenceLayerNormImpl::SequenceLayerNormImpl(const ReplicaAxis& axis,
                                             const torch::nn::LayerNormOptions& options)
    : SequenceLayerNormImpl(axis, torch::nn::LayerNorm(options)) {}

SequenceLayerNormImpl::SequenceLayerNormImpl(const ReplicaAxis& axis, const torch::nn::LayerNorm& whole)
    : ParallelModule(kSequenceNorm, axis), options_(options_of_norm(whole)) {
  const auto copy = [&](const char* name, const torch::Tensor& values) {
    return values.defined() ? register_parameter(name, values.detach().clone(), values.requires_grad())
                            : register_parameter(name, {}, /*requires_grad=*/false);
  };
  weight = copy("weight", whole->weight);
  bias = copy("bias", whole->bias);
}

torch::Tensor SequenceLayerNormImpl::forward(const torch::Tensor& shard) {
  if (!weight.defined()) return at::layer_norm(shard, options_.normalized_shape(), {}, {}, options_.eps());
  // Both in one sum.
  const auto both = parallel_axis().copy_to_parts(at::stack({weight, bias}));
  return at::layer_norm(shard, options_.normalized_shape(), both[0], both[1], options_.eps());
}

void SequenceLayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SequenceLayerNorm([" << options_.normalized_shape() << "], eps=" << options_.eps()
         << ", shard " << parallel_axis().index() << " of " << parallel_axis().size() << ")";
}

}  // namespace lockstep
