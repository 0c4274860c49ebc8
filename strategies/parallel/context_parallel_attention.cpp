#include "lockstep/strategies/parallel/context_parallel_attention.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>

#include <array>
#include <cmath>
#include <ostream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/internal/head_exchange.h"
#include "lockstep/strategies/parallel/internal/ring_attention.h"

namespace lockstep {
namespace {

constexpr const char* kAttention = "ContextParallelAttention";

/// Returns the value in the dtype in which autocast has LibTorch's attention compute.
torch::Tensor cast_for_attention(const torch::Tensor& value) {
  const auto device = value.device().type();
  return value.scalar_type() == torch::kDouble ? value : value.to(at::autocast::get_autocast_dtype(device));
}

}  // namespace

ContextParallelAttentionImpl::ContextParallelAttentionImpl(const ReplicaAxis& axis,
                                                           const ContextParallelAttentionOptions& options)
    : torch::nn::Module(kAttention), axis_(kAttention, axis, AxisRole::kContext), options_(options) {}

ContextOrder ContextParallelAttentionImpl::order(int64_t length) const {
  return ContextOrder({.length = length,
                       .ranks = axis_.size(),
                       .index = axis_.index(),
                       .order = options_.is_causal ? TokenOrder::kZigzag : TokenOrder::kPlain});
}

void ContextParallelAttentionImpl::check(const torch::Tensor& q, const torch::Tensor& k,
                                         const torch::Tensor& v, const ContextOrder& order) const {
  if (order.ranks() != axis_.size() || order.index() != axis_.index()) {
    throw InvalidArgument(c10::str("[", kAttention, "] expected an order of the tokens of rank ",
                                   axis_.index(), " of ", axis_.size(), " along the axis ", axis_.name(),
                                   ", but got one of rank ", order.index(), " of ", order.ranks()));
  }
  const auto fail = [&](const std::string& expected) {
    throw InvalidArgument(c10::str("[", kAttention, "] expected ", expected, ", but got q ", q.scalar_type(),
                                   " ", q.sizes(), ", k ", k.scalar_type(), " ", k.sizes(), " and v ",
                                   v.scalar_type(), " ", v.sizes()));
  };
  const bool have_shapes = q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
                           q.size(2) == k.size(2) && q.size(3) == k.size(3);
  if (!have_shapes || q.size(3) == 0) {
    fail("q of [batch, heads, tokens, head_dim], and k and v of [batch, kv_heads, tokens, head_dim]");
  }
  if (!q.is_floating_point() || q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type())
    fail("q, k and v of one floating-point dtype");
  if (k.size(1) == 0 || q.size(1) % k.size(1) != 0) fail("kv_heads that divide the heads of q");
  if (q.size(2) != order.tokens_of(order.index())) {
    fail(c10::str(order.tokens_of(order.index()), " tokens, this rank's of ", order.length(),
                  " (see ContextOrder::own_part())"));
  }
}

torch::Tensor ContextParallelAttentionImpl::forward(const torch::Tensor& q, const torch::Tensor& k,
                                                    const torch::Tensor& v, const ContextOrder& order) {
  const auto device = q.device().type();
  if (at::autocast::is_autocast_enabled(device)) {
    const std::array cast{cast_for_attention(q), cast_for_attention(k), cast_for_attention(v)};
    const AutocastGuard as_given(device, torch::kFloat);
    return forward(cast[0], cast[1], cast[2], order);
  }
  check(q, k, v, order);
  const AttentionRule rule{.scale = options_.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3)))),
                           .is_causal = options_.is_causal};
  if (options_.method == ContextMethod::kAllToAll) axis_.share_of(q.size(1), "heads");
  std::optional<ReplicaBackends> ranks;
  WaitClock* waits = nullptr;
  if (axis_.size() > 1) {
    axis_.refuse_capture("attention over several ranks");
    ranks = axis_.backends();
    waits = &axis_.waits();
  }
  if (options_.method == ContextMethod::kAllToAll)
    return exchanged_attention(ranks, waits, order, {q, k, v}, rule);
  return ring_attention(ranks, waits, order, {q.contiguous(), k.contiguous(), v.contiguous()}, rule);
}

void ContextParallelAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ContextParallelAttention("
         << (options_.method == ContextMethod::kRing ? "ring" : "all-to-all")
         << ", is_causal=" << std::boolalpha << options_.is_causal << ", part " << axis_.index() << " of "
         << axis_.size() << ")";
}

}  // namespace lockstep
