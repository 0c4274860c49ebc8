#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/parallel_axis.h"

namespace lockstep {

/// The way in which ranks that have different tokens compute attention between all of them.
enum class ContextMethod : uint8_t {
  /// Keys and values go around the ranks. Any number of heads will do. Memory is that of each rank's own
  /// tokens, a few times.
  kRing,
  /// The ranks exchange their tokens for heads, which they must divide. One exchange before attention and one
  /// after it, and each rank has some heads of all tokens meanwhile.
  kAllToAll,
};

struct ContextParallelAttentionOptions {
  ContextMethod method = ContextMethod::kRing;
  bool is_causal = false;       ///< A token attends to itself and those before it.
  std::optional<double> scale;  ///< of the scores q k^T; none: 1 / sqrt(head_dim)
};

/// softmax(q k^T * scale) v over a sequence of which each rank along a context axis (see AxisRole) has some
/// tokens: torch::scaled_dot_product_attention over the whole sequence.
///
/// Example:
///
///     auto attention = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,context=2
///       return ContextParallelAttention(replica.axis("context"),
///                                       ContextParallelAttentionOptions{.is_causal = true});
///     });
///     // In a step, of whose ids this rank has a part:
///     //   const ContextOrder order = attention->order(ids.size(1));
///     //   const auto x = embedding(order.own_part(ids, 1));
///     //   auto y = attention(q_of(x), k_of(x), v_of(x), order);
class ContextParallelAttentionImpl : public torch::nn::Module, public ReplicaBound {
 public:
  /// Throws InvalidArgument for an axis of several ranks that is not a context axis.
  explicit ContextParallelAttentionImpl(const ReplicaAxis& axis,
                                        const ContextParallelAttentionOptions& options = {});

  /// Returns the order for sequences of `length` tokens in which all ranks have the same work: zigzag for
  /// causal attention, and plain otherwise. forward() takes either.
  ContextOrder order(int64_t length) const;

  /// Maps queries [batch, heads, tokens, head_dim] and keys and values [batch, kv_heads, tokens, head_dim] of
  /// this rank's tokens to [batch, heads, tokens, head_dim]. `kv_heads` divides `heads`, and each serves
  /// heads / kv_heads of them, one after another. A collective, as is its backward, which all ranks must run.
  /// There are no second derivatives by kRing. Throws InvalidArgument for other shapes and dtypes, for an
  /// order of other ranks, in a CudaGraph and, by kAllToAll, if the ranks do not divide the heads; by kRing
  /// between worker processes over Gloo. Throws as collectives do, such as CollectiveMismatch if the
  /// ranks' orders differ.
  ///
  /// On CPUs, blocks are computed by LibTorch's flash kernel, in float64 too. Elsewhere kRing computes them
  /// by matrix products. Autocast shortens the inputs, as it does those of LibTorch's attention.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const ContextOrder& order);

  const ContextParallelAttentionOptions& options() const { return options_; }
  const ParallelAxis& parallel_axis() const { return axis_; }
  void bind(std::shared_ptr<const ReplicaCollectives> replica) override { axis_.bind(std::move(replica)); }
  void pretty_print(std::ostream& stream) const override;

 private:
  void check(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
             const ContextOrder& order) const;

  ParallelAxis axis_;
  ContextParallelAttentionOptions options_;
};
TORCH_MODULE(ContextParallelAttention);

}  // namespace lockstep
