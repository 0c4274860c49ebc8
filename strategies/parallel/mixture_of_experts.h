#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/expert_weights.h"
#include "lockstep/strategies/parallel/parallel_axis.h"

namespace lockstep {

enum class ExpertActivation : uint8_t {
  kGelu,      ///< x times the normal distribution function of x
  kGeluTanh,  ///< the approximation with tanh
  kSwiGlu,    ///< silu(gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020)
};

struct MixtureOfExpertsOptions {
  int64_t features = 0;           ///< of the input and the output
  int64_t hidden_features = 0;    ///< of each expert
  int64_t num_experts = 0;        ///< the ranks along the axis must divide it
  int64_t experts_per_token = 2;  ///< those with the highest probabilities
  /// Experts that all tokens use besides, without weights (Dai et al., "DeepSeekMoE", 2024).
  int64_t num_shared_experts = 0;
  ExpertActivation activation = ExpertActivation::kGelu;
  bool bias = true;
  /// Divides the probabilities of a token's experts by their sum. With one expert a token it does not, as a
  /// weight of 1 would leave the router without a gradient.
  bool normalizes = true;
  /// In training, an expert takes at most `capacity_factor * experts_per_token * tokens / num_experts` tokens
  /// of a sequence, rounded up: the first ones. The others go without it. None: all tokens get their experts.
  std::optional<double> capacity_factor = std::nullopt;
  /// Throws if the router's numbers are not finite. Otherwise the output is not, either, so that the loss
  /// shows it.
  bool refuses_not_finite = true;
};

struct MixtureOutput {
  torch::Tensor output;        ///< [..., tokens, features]
  torch::Tensor balance_loss;  ///< [...]: one for each sequence, 1 if all experts have the same load
  torch::Tensor z_loss;        ///< [...]: mean over each sequence's tokens
};

/// The choices of a rank's router since reset_statistics(), over its own tokens, in training.
struct RoutingStatistics {
  torch::Tensor load;      ///< int64 [num_experts]: tokens that chose each expert, the dropped ones included
  torch::Tensor dropped;   ///< int64 [num_experts]: those that the expert had no room for
  int64_t not_finite = 0;  ///< tokens whose router's numbers were NaN or infinite
};

/// A mixture of experts: a router sends each token to a few of many MLPs, and sums what these return by the
/// router's probabilities (Shazeer et al., "Outrageously Large Neural Networks", 2017; Fedus et al., "Switch
/// Transformers", 2022). The number of parameters grows with the experts, the work of a token with
/// experts_per_token alone.
///
/// Along an axis of the mesh that cuts the batch, such as "expert" or "data", each rank has an equal share of
/// the experts. Tokens travel to the ranks of their experts and back. All ranks must call forward and
/// backward equally often, also without examples. Gradients of experts are summed over the ranks that have
/// the same ones, all others over all ranks. The ranks' parts are slices of the stacked weights
/// [num_experts, ...] (see ShardedParameter), as in sharded units; names and initial values are those of one
/// device's layer.
///
/// Results do not depend on the number of ranks, nor on how the batch is cut: the losses and the capacity are
/// of each sequence by itself. An expert has room for the first tokens of a sequence that choose it, in the
/// order of the tokens and, for the same token, of the probabilities. So whether a token is dropped depends
/// on itself and on earlier tokens only. In evaluation, no token is dropped.
///
/// Along a context axis, each rank has some tokens of each sequence: see share_sequences().
///
/// Add the losses to those that you train with, times small factors:
///  - balance_loss is num_experts * sum over the experts of f * P, with the share f of the choices that fell
///    on the expert, and the mean P of its probabilities (Fedus et al., equations 4 to 6, for each sequence);
///  - z_loss is the mean square of the logarithm of the sum of exp(logits) (Zoph et al., "ST-MoE", 2022,
///    equation 5).
///
/// The router computes in float32, or float64 for such an input, autocast or not.
///
/// Example:
///
///     auto experts = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,expert=2
///       return MixtureOfExperts(replica.axis("expert"),
///                               MixtureOfExpertsOptions{
///                                   .features = 256, .hidden_features = 512, .num_experts = 8});
///     });
///     // In a step: auto [y, balance, z] = experts->forward(x);
///     //   losses = losses + 0.01 * balance + 0.001 * z;  // of each example
class MixtureOfExpertsImpl : public torch::nn::Cloneable<MixtureOfExpertsImpl>, public ReplicaBound {
 public:
  /// Makes all experts on this device. Throws InvalidArgument for a number out of range.
  explicit MixtureOfExpertsImpl(const MixtureOfExpertsOptions& options);
  /// Makes all experts and keeps this rank's. Throws InvalidArgument as above and as cut().
  MixtureOfExpertsImpl(const ReplicaAxis& axis, const MixtureOfExpertsOptions& options);

  void reset() override;
  /// Keeps this rank's experts only. Call it once, when the layer has its values. It cannot be cloned
  /// afterwards. Throws InvalidArgument with numbers that would do if the ranks do not divide the experts,
  /// and for an axis that does not cut the batch.
  void cut(const ReplicaAxis& axis);
  /// Lets the ranks along a context axis have different tokens of the sequences. Calls of mix() with an order
  /// then count the tokens of all of them, in the sequence's order. Call it once. Throws InvalidArgument for
  /// an axis with another role.
  void share_sequences(const ReplicaAxis& axis);

  /// Maps [..., tokens, features] to the same shape; all but the last two dimensions count sequences. With
  /// several ranks along the axis, a collective, as is its backward. Waits for the device. Throws
  /// InvalidArgument for other shapes and in a CudaGraph, std::domain_error naming the layer if the router's
  /// numbers are not finite (see MixtureOfExpertsOptions), and as collectives do.
  MixtureOutput forward(const torch::Tensor& input) { return mix(input, is_training()); }
  /// The same as in training or as in evaluation, whatever the mode.
  MixtureOutput mix(const torch::Tensor& input, bool is_training) {
    return mix_tokens(input, is_training, nullptr);
  }
  /// The same for the tokens of the sequences that this rank has, in their order. A token is dropped if one
  /// rank with whole sequences would drop it. The losses are this rank's parts of those of whole sequences:
  /// they add up along the axis. A collective of the ranks along the axis of share_sequences(), but not its
  /// backward. A rank may have no token. Throws InvalidArgument for an order of other ranks than those along
  /// the axis, and for an input with another number of tokens.
  MixtureOutput mix(const torch::Tensor& input, bool is_training, const ContextOrder& order);

  const MixtureOfExpertsOptions& options() const { return options_; }
  /// Returns copies of the statistics. Backward of a recomputed layer does not count a second time.
  RoutingStatistics statistics() const;
  void reset_statistics();

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  struct Routing;

  MixtureOutput mix_tokens(const torch::Tensor& input, bool is_training, const ContextOrder* order);
  Routing route(const torch::Tensor& input, bool is_training, const ContextOrder* order) const;
  torch::Tensor run_experts(const torch::Tensor& rows, const std::vector<int64_t>& counts) const;
  torch::Tensor run_experts_of_ranks(const torch::Tensor& rows, const std::vector<int64_t>& counts) const;
  torch::Tensor run_shared_experts(const torch::Tensor& tokens) const;
  torch::Tensor activated(const torch::Tensor& up, const torch::Tensor& gate) const;
  void count(const Routing& routing);

  MixtureOfExpertsOptions options_;
  std::optional<ParallelAxis> axis_;    ///< none: all experts are here
  std::optional<ParallelAxis> tokens_;  ///< none: no other rank has tokens of the same sequences
  ExpertWeights router_{nullptr};       ///< one matrix [num_experts, features], without bias
  ExpertWeights gate_{nullptr};         ///< for SwiGLU
  ExpertWeights up_{nullptr};
  ExpertWeights down_{nullptr};
  ExpertWeights shared_gate_{nullptr};
  ExpertWeights shared_up_{nullptr};
  ExpertWeights shared_down_{nullptr};
  RoutingStatistics statistics_;
};
TORCH_MODULE(MixtureOfExperts);

}  // namespace lockstep
