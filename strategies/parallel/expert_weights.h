#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {

struct ExpertWeightsOptions {
  std::vector<int64_t> shape;  ///< of the weight: [outputs, inputs], or [experts, outputs, inputs]
  bool bias = true;            ///< of the weight's shape without the inputs
};

/// The weights of a linear layer, or of the same layer of several experts, one after another. Along an axis
/// of the mesh, each rank may have some of the experts: `weight` and `bias` are then slices of the stacked
/// ones (see ShardedParameter).
///
/// Example:
///
///     ExpertWeights up(ExpertWeightsOptions{.shape = {8, 512, 256}});  // 8 experts
///     up.ptr()->cut(replica.axis("expert"));                           // along expert=2, 4 of them
///     const auto hidden = torch::linear(rows, up->stacked_weight()[0], up->stacked_bias()[0]);
class ExpertWeightsImpl : public torch::nn::Cloneable<ExpertWeightsImpl> {
 public:
  /// Values are drawn as torch::nn::Linear draws them: uniformly, up to 1 / sqrt(inputs).
  explicit ExpertWeightsImpl(ExpertWeightsOptions options);

  void reset() override;
  /// Keeps this rank's experts, whose number the ranks divide.
  void cut(const ReplicaAxis& axis);

  /// Returns the weights of this rank's experts, [experts of this rank, outputs, inputs].
  torch::Tensor stacked_weight() const;
  /// Returns their biases, [experts of this rank, outputs]; undefined if there are none.
  torch::Tensor stacked_bias() const;

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;
  torch::Tensor bias;  ///< undefined if there is none

 private:
  torch::Tensor own_experts(const std::string& name, const torch::Tensor& whole, const ReplicaAxis& axis);
  void mark();

  ExpertWeightsOptions options_;
  int64_t experts_ = 1;                           ///< of this rank
  std::map<std::string, ShardedParameter> cuts_;  ///< by parameter; empty if all experts are here
};
TORCH_MODULE(ExpertWeights);

}  // namespace lockstep
