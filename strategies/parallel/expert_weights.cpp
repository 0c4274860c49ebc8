#include "lockstep/strategies/parallel/expert_weights.h"

#include <torch/utils.h>

#include <cmath>
#include <ostream>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

ExpertWeightsImpl::ExpertWeightsImpl(ExpertWeightsOptions options) : options_(std::move(options)) {
  if (options_.shape.size() == 3) experts_ = options_.shape.front();
  reset();
}

void ExpertWeightsImpl::reset() {
  if (!cuts_.empty())
    throw InvalidArgument("[ExpertWeights] expected to clone all experts, but each rank has some of them");
  const double bound = 1 / std::sqrt(static_cast<double>(options_.shape.back()));
  const auto drawn = [&](const std::vector<int64_t>& sizes) {
    const torch::NoGradGuard no_grad;
    return torch::empty(sizes).uniform_(-bound, bound);
  };
  weight = register_parameter("weight", drawn(options_.shape));
  if (!options_.bias) return;
  bias = register_parameter("bias", drawn({options_.shape.begin(), options_.shape.end() - 1}));
}

torch::Tensor ExpertWeightsImpl::own_experts(const std::string& name, const torch::Tensor& whole,
                                             const ReplicaAxis& axis) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor values = whole.detach().contiguous();
  const int64_t length = values.numel() / axis.size();
  const ShardedParameter part{.name = name,
                              .sizes = values.sizes().vec(),
                              .strides = values.strides().vec(),
                              .offset = axis.index() * length,
                              .length = length,
                              .axis = axis.name()};
  const auto own = values.flatten().narrow(0, part.offset, length).clone();
  own.set_requires_grad(whole.requires_grad());
  parameters_[name] = own;
  cuts_.emplace(name, part);
  return own;
}

void ExpertWeightsImpl::cut(const ReplicaAxis& axis) {
  if (axis.size() == 1) return;
  experts_ /= axis.size();
  weight = own_experts("weight", weight, axis);
  if (bias.defined()) bias = own_experts("bias", bias, axis);
  mark();
}

torch::Tensor ExpertWeightsImpl::stacked_weight() const {
  const int64_t inputs = options_.shape.back();
  return weight.view({experts_, weight.numel() / experts_ / inputs, inputs});
}

torch::Tensor ExpertWeightsImpl::stacked_bias() const {
  return bias.defined() ? bias.view({experts_, bias.numel() / experts_}) : bias;
}

/// Moving a parameter drops its mark.
void ExpertWeightsImpl::mark() {
  for (const auto& [name, part] : cuts_) mark_shard(parameters_[name], part);
}

void ExpertWeightsImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  mark();
}

void ExpertWeightsImpl::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  mark();
}

void ExpertWeightsImpl::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  mark();
}

void ExpertWeightsImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ExpertWeights(" << torch::IntArrayRef(options_.shape)
         << (options_.bias ? ", bias" : "");
  if (!cuts_.empty()) stream << ", " << experts_ << " of the experts here";
  stream << ")";
}

}  // namespace lockstep
