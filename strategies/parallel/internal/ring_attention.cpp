#include "lockstep/strategies/parallel/internal/ring_attention.h"

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& value, const TokenRange& range) {
  return value.narrow(2, range.begin, range.length);
}

/// The ranks in a ring, of which each sends to the next one. Sends do not wait, so that a rank that is ahead
/// could fill its memory with what the next one has yet to receive: the next one confirms each step.
class TokenRing {
 public:
  TokenRing(std::optional<ReplicaBackends> ring, ContextOrder order)
      : ring_(std::move(ring)), order_(std::move(order)) {}

  const ContextOrder& order() const { return order_; }
  int ranks() const { return order_.ranks(); }
  /// Returns the rank whose keys are here after `step` hand-overs.
  int source(int step) const { return (order_.index() - step + ranks()) % ranks(); }

  void send(const at::Tensor& value) const {
    if (value.numel() > 0) lockstep::send(*ring_, value, next());
  }
  void receive_(const at::Tensor& value) const {
    if (value.numel() > 0) lockstep::receive_(*ring_, value, previous());
  }
  /// Receives a tensor like `value`, but of a rank's tokens.
  at::Tensor receive(const at::Tensor& value, int rank) const {
    auto sizes = value.sizes().vec();
    sizes[2] = order_.tokens_of(rank);
    at::Tensor received = at::empty(sizes, value.options());
    receive_(received);
    return received;
  }
  /// Tells the rank before that this one has received what it sent.
  void confirm() const { lockstep::send(*ring_, at::zeros({1}), previous()); }
  /// Waits until the next rank confirms.
  void await_confirmation() const { lockstep::receive_(*ring_, at::empty({1}), next()); }

 private:
  int next() const { return (order_.index() + 1) % ranks(); }
  int previous() const { return (order_.index() - 1 + ranks()) % ranks(); }

  std::optional<ReplicaBackends> ring_;
  ContextOrder order_;
};

/// The heads of keys that go around together. Each head of a sequence is attention of its own, so that a ring
/// by few heads at a time has only their keys, values and gradients on their way.
struct HeadPiece {
  int64_t begin = 0;
  int64_t length = 0;

  at::Tensor of(const at::Tensor& value) const { return value.narrow(0, begin, length); }
};

/// At most this many pieces, each at least as large: a smaller one is not worth its messages, nor, on
/// accelerators, its kernels.
constexpr int64_t kMostPieces = 16;
constexpr int64_t kLeastPieceBytes = 64 << 10;
constexpr int64_t kLeastAcceleratorPieceBytes = 4 << 20;

/// Divides the keys [heads, 1, tokens, head_dim], on all ranks alike, though ranks may have other numbers of
/// tokens.
std::vector<HeadPiece> pieces_of(const at::Tensor& keys, const ContextOrder& order) {
  const int64_t heads = keys.size(0);
  const int64_t head_bytes =
      order.length() / order.ranks() * keys.size(3) * static_cast<int64_t>(keys.element_size());
  const int64_t least = keys.is_cpu() ? kLeastPieceBytes : kLeastAcceleratorPieceBytes;
  const int64_t most = std::clamp<int64_t>(heads * head_bytes / least, 1, kMostPieces);
  const int64_t length = (heads + most - 1) / most;
  std::vector<HeadPiece> pieces;
  for (int64_t begin = 0; begin < heads; begin += length)
    pieces.push_back({begin, std::min(length, heads - begin)});
  return pieces;
}

/// Returns [batch * kv_heads, heads / kv_heads, ...] of [batch, heads, ...], a view if `value` is contiguous.
at::Tensor by_head(const at::Tensor& value, int64_t kv_heads) {
  return value.unflatten(1, {kv_heads, value.size(1) / kv_heads}).flatten(0, 1);
}

AttentionInputs by_head(const AttentionInputs& inputs) {
  const int64_t kv_heads = inputs.k.size(1);
  return {by_head(inputs.q, kv_heads), by_head(inputs.k, kv_heads), by_head(inputs.v, kv_heads)};
}

/// Combines outputs over different keys: their weights are exp(log_sum), and the sum of those is the weight
/// of both.
void merge_block_(const AttentionBlock& total, const AttentionBlock& block) {
  const at::Tensor log_sums = at::logaddexp(total.log_sums, block.log_sums);
  total.out.mul_(total.log_sums.sub(log_sums).exp_().unsqueeze(-1));
  total.out.addcmul_(block.out.to(total.out.scalar_type()),
                     block.log_sums.sub(log_sums).exp_().unsqueeze(-1));
  total.log_sums.copy_(log_sums);
}

/// Returns the span, none if it is empty, or the batch is.
std::optional<AttentionSpan> span_to_compute(const ContextOrder& order, int source,
                                             const AttentionInputs& inputs, const AttentionRule& rule) {
  const auto span = span_of(order, source, rule.is_causal);
  if (!span || span->queries.length == 0 || span->keys.length == 0 || inputs.q.numel() == 0)
    return std::nullopt;
  return span;
}

template <typename Function>
void await(WaitClock* waits, const Function& function) {
  std::optional<WaitClock::Wait> wait;
  if (waits != nullptr) wait.emplace(*waits);
  function();
}

/// Returns the attention of a piece's queries over all keys.
AttentionBlock forward_of_piece(const TokenRing& ring, WaitClock* waits, const AttentionInputs& inputs,
                                const AttentionRule& rule) {
  const auto exact = inputs.q.options().dtype(at::toOpMathType(inputs.q.scalar_type()));
  AttentionBlock total;
  at::Tensor keys = inputs.k;
  at::Tensor values = inputs.v;
  for (int step = 0; step < ring.ranks(); ++step) {
    const bool is_last = step + 1 == ring.ranks();
    if (!is_last) {
      if (step > 0) await(waits, [&] { ring.await_confirmation(); });
      ring.send(keys);  // takes its time while this rank computes
      ring.send(values);
    }
    const auto span = span_to_compute(ring.order(), ring.source(step), inputs, rule);
    if (span) {
      const AttentionBlock block =
          attend({rows_of(inputs.q, span->queries), rows_of(keys, span->keys), rows_of(values, span->keys)},
                 {.scale = rule.scale, .is_causal = span->is_causal});
      if (step == 0) {  // a rank's own keys concern all of its queries
        total = {block.out.to(exact.dtype()).contiguous(), block.log_sums.to(exact.dtype()).contiguous()};
      } else {
        merge_block_({rows_of(total.out, span->queries), rows_of(total.log_sums, span->queries)}, block);
      }
    } else if (step == 0) {
      total = {at::empty(inputs.q.sizes(), exact), at::empty(inputs.q.sizes().slice(0, 3), exact)};
    }
    if (is_last) break;
    await(waits, [&] {
      keys = ring.receive(keys, ring.source(step + 1));
      values = ring.receive(values, ring.source(step + 1));
    });
    ring.confirm();
  }
  await(waits, [&] { ring.await_confirmation(); });
  return total;
}

AttentionBlock ring_forward(const TokenRing& ring, WaitClock* waits, const AttentionInputs& inputs,
                            const AttentionRule& rule) {
  const auto dtype = at::toOpMathType(inputs.q.scalar_type());
  if (ring.ranks() == 1 && inputs.q.numel() > 0) {
    const AttentionBlock block = attend(inputs, rule);
    return {block.out.to(inputs.q.scalar_type()).contiguous(), block.log_sums.to(dtype).contiguous()};
  }
  const AttentionBlock whole{at::empty(inputs.q.sizes(), inputs.q.options()),
                             at::empty(inputs.q.sizes().slice(0, 3), inputs.q.options().dtype(dtype))};
  if (ring.ranks() == 1) return whole;
  const AttentionInputs heads = by_head(inputs);
  const int64_t kv_heads = inputs.k.size(1);
  for (const HeadPiece& piece : pieces_of(heads.k, ring.order())) {
    const AttentionBlock block =
        forward_of_piece(ring, waits, {piece.of(heads.q), piece.of(heads.k), piece.of(heads.v)}, rule);
    piece.of(by_head(whole.out, kv_heads)).copy_(block.out);
    piece.of(by_head(whole.log_sums, kv_heads)).copy_(block.log_sums);
  }
  return whole;
}

/// Writes the gradients of a piece into `own`.
void backward_of_piece(const TokenRing& ring, const at::Tensor& gradient, const AttentionInputs& inputs,
                       const AttentionBlock& whole, const AttentionRule& rule,
                       const AttentionGradients& own) {
  const auto dtype = own.q.scalar_type();
  at::Tensor keys = inputs.k;
  at::Tensor values = inputs.v;
  for (int step = 0; step < ring.ranks(); ++step) {
    const bool is_last = step + 1 == ring.ranks();
    if (!is_last) {
      ring.send(keys);
      ring.send(values);
    }
    AttentionGradients block;
    const auto span = span_to_compute(ring.order(), ring.source(step), inputs, rule);
    if (span) {
      block = attend_backward(
          rows_of(gradient, span->queries),
          {rows_of(inputs.q, span->queries), rows_of(keys, span->keys), rows_of(values, span->keys)},
          {rows_of(whole.out, span->queries), rows_of(whole.log_sums, span->queries)},
          {.scale = rule.scale, .is_causal = span->is_causal});
      if (step == 0) {  // a rank's own keys concern all of its queries
        own.q.copy_(block.q);
      } else {
        rows_of(own.q, span->queries).add_(block.q);
      }
    }
    for (auto* const used : {&block.q, &keys, &values}) used->reset();
    // Gradients are on their way home: one after the other, so that few are here at a time.
    for (const auto& [part, like] : {std::pair{&block.k, &own.k}, std::pair{&block.v, &own.v}}) {
      if (step == 0) {
        ring.send(span ? part->to(dtype).contiguous() : at::zeros_like(*like));
      } else {
        const at::Tensor sum = ring.receive(*like, ring.source(step));
        if (span) rows_of(sum, span->keys).add_(*part);
        ring.send(sum);
      }
      part->reset();
    }
    if (step > 0)
      ring.await_confirmation();  // after what the rank before sent first, if it is the next one, too
    if (is_last) break;
    keys = ring.receive(inputs.k, ring.source(step + 1));
    values = ring.receive(inputs.v, ring.source(step + 1));
    ring.confirm();
  }
  ring.receive_(own.k);
  ring.receive_(own.v);
}

AttentionGradients ring_backward(const TokenRing& ring, const at::Tensor& gradient,
                                 const AttentionInputs& inputs, const AttentionBlock& whole,
                                 const AttentionRule& rule) {
  const bool is_empty = inputs.q.numel() == 0;
  if (ring.ranks() == 1 && !is_empty) return attend_backward(gradient, inputs, whole, rule);
  const auto exact = inputs.q.options().dtype(at::toOpMathType(inputs.q.scalar_type()));
  AttentionGradients own{at::empty(inputs.q.sizes(), exact), at::empty(inputs.k.sizes(), exact),
                         at::empty(inputs.v.sizes(), exact)};
  if (ring.ranks() == 1) return {own.q, own.k.zero_(), own.v.zero_()};
  const AttentionInputs heads = by_head(inputs);
  const int64_t kv_heads = inputs.k.size(1);
  for (const HeadPiece& piece : pieces_of(heads.k, ring.order())) {
    const auto part = [&](const at::Tensor& value) { return piece.of(by_head(value, kv_heads)); };
    backward_of_piece(ring, part(gradient), {piece.of(heads.q), piece.of(heads.k), piece.of(heads.v)},
                      {part(whole.out), part(whole.log_sums)}, rule, {part(own.q), part(own.k), part(own.v)});
  }
  return own;
}

class RingAttentionBackward final : public Node {
 public:
  RingAttentionBackward(TokenRing ring, const AttentionInputs& inputs, const AttentionRule& rule)
      : ring_(std::move(ring)),
        q_(inputs.q, /*is_output=*/false),
        k_(inputs.k, /*is_output=*/false),
        v_(inputs.v, /*is_output=*/false),
        rule_(rule) {}

  std::string name() const override { return "RingAttentionBackward"; }

  /// Call it once the node is that of `out`.
  void save(const at::Tensor& out, at::Tensor log_sums) {
    out_ = torch::autograd::SavedVariable(out, /*is_output=*/true);
    log_sums_ = std::move(log_sums);
  }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(
          "[ring_attention] expected a backward without create_graph: there are no second derivatives");
    }
    // Other ranks may have a gradient where this one has none.
    if (!gradients[0].defined()) gradients[0] = input_metadata(0).zeros_like();
    const AttentionInputs inputs{q_.unpack(), k_.unpack(), v_.unpack()};
    const AttentionGradients own =
        ring_backward(ring_, gradients[0], inputs, {out_.unpack(getptr()), log_sums_}, rule_);
    return {own.q.to(inputs.q.scalar_type()), own.k.to(inputs.k.scalar_type()),
            own.v.to(inputs.v.scalar_type())};
  }

  void release_variables() override {
    for (auto* saved : {&q_, &k_, &v_, &out_}) saved->reset_data();
    log_sums_.reset();
  }

 private:
  TokenRing ring_;
  torch::autograd::SavedVariable q_;
  torch::autograd::SavedVariable k_;
  torch::autograd::SavedVariable v_;
  torch::autograd::SavedVariable out_;
  at::Tensor log_sums_;
  AttentionRule rule_;
};

}  // namespace

std::optional<AttentionSpan> span_of(const ContextOrder& order, int source, bool is_causal) {
  const int own = order.index();
  AttentionSpan span{{0, order.tokens_of(own)}, {0, order.tokens_of(source)}};
  if (!is_causal) return span;
  span.is_causal = source == own;
  if (span.is_causal) return span;
  if (order.order() == TokenOrder::kPlain) {
    if (source > own) return std::nullopt;
    return span;
  }
  // In zigzag order, with chunks counted from the front: of an earlier rank, the first chunk is before both
  // of this rank's and the second one after both. Of a later rank, both chunks are between this rank's two.
  if (source < own) {
    span.keys = {0, order.chunks_of(source)[0].length};
  } else {
    const auto chunks = order.chunks_of(own);
    span.queries = {chunks[0].length, chunks[1].length};
  }
  return span;
}

at::Tensor ring_attention(const std::optional<ReplicaBackends>& ring, WaitClock* waits,
                          const ContextOrder& order, const AttentionInputs& inputs,
                          const AttentionRule& rule) {
  const TokenRing tokens(ring, order);
  AttentionBlock whole;
  {
    const at::NoGradGuard no_grad;
    whole = ring_forward(tokens, waits, {inputs.q.detach(), inputs.k.detach(), inputs.v.detach()}, rule);
  }
  const bool has_gradient = inputs.q.requires_grad() || inputs.k.requires_grad() || inputs.v.requires_grad();
  if (!at::GradMode::is_enabled() || !has_gradient) return whole.out;
  auto* const backward = new RingAttentionBackward(tokens, inputs, rule);
  const std::shared_ptr<Node> node(backward, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs.q, inputs.k, inputs.v));
  torch::autograd::create_gradient_edge(whole.out, node);
  backward->save(whole.out, std::move(whole.log_sums));
  return whole.out;
}

}  // namespace lockstep
