// Attention of ranks that have different tokens of a sequence. Oracle: LibTorch's attention over the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/tests/strategies/parallel/context_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StrategyOptions context_options(int ranks) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = {{"context", ranks}}, .timeout = std::chrono::minutes(2)};
}

torch::Tensor own_leaf(const ContextOrder& order, const torch::Tensor& whole) {
  return order.own_part(whole.detach(), 2).clone().requires_grad_();
}

/// Runs attention and its backward on the ranks, and expects each rank's part of the whole's results.
void expect_attention(Strategy& strategy, const WholeAttention& whole,
                      const ContextParallelAttentionOptions& options, TokenOrder token_order,
                      double tolerance) {
  auto attention = strategy.scope(
      [&](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context"), options); });
  strategy.run(
      [&](ReplicaContext& replica, ContextParallelAttention& own) {
        const ContextOrder order(replica.axis("context"), whole.q.size(2), token_order);
        const auto q = own_leaf(order, whole.q);
        const auto k = own_leaf(order, whole.k);
        const auto v = own_leaf(order, whole.v);
        const auto out = own(q, k, v, order);
        expect_near(out, order.own_part(whole.out.detach(), 2), tolerance);
        (out * order.own_part(whole.weights, 2)).sum().backward();
        expect_near(q.grad(), order.own_part(whole.q.grad(), 2), tolerance);
        expect_near(k.grad(), order.own_part(whole.k.grad(), 2), tolerance);
        expect_near(v.grad(), order.own_part(whole.v.grad(), 2), tolerance);
      },
      attention);
}

/// With 4 ranks, some have no token of the shortest two.
const auto kLengths = few_if_sanitized(std::vector<int64_t>{37, 1, 32, 48, 5}, 2);

class ContextAttention : public testing::TestWithParam<std::tuple<int, ContextMethod, bool>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  ContextParallelAttentionOptions options() const {
    return {.method = std::get<1>(GetParam()), .is_causal = std::get<2>(GetParam())};
  }
};

TEST_P(ContextAttention, EqualsAttentionOverTheWholeSequence) {
  MirroredStrategy strategy(cpu_devices(ranks()), context_options(ranks()));
  for (const int64_t tokens : kLengths) {
    for (const auto order : {TokenOrder::kPlain, TokenOrder::kZigzag}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, order " << static_cast<int>(order));
      // 12 heads are divided by 1 to 4 ranks. An odd head_dim fills no vector of a kernel.
      const AttentionSizes sizes{.heads = 12, .kv_heads = 12, .tokens = tokens, .head_dim = 7};
      expect_attention(strategy, WholeAttention(sizes, options().is_causal), options(), order, 1e-12);
    }
  }
}

TEST_P(ContextAttention, OfAnEmptyShardIsEmpty) {
  MirroredStrategy strategy(cpu_devices(ranks()), context_options(ranks()));
  auto attention = strategy.scope(
      [&](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context"), options()); });
  strategy.run(
      [&](ReplicaContext&, ContextParallelAttention& own) {
        const ContextOrder order = own->order(9);
        const auto q = torch::zeros({0, 12, order.tokens_of(order.index()), 2}).requires_grad_();
        const auto out = own(q, q, q, order);
        EXPECT_EQ(out.sizes(), q.sizes());
        out.sum().backward();
        EXPECT_EQ(q.grad().sizes(), q.sizes());
      },
      attention);
}

TEST_P(ContextAttention, EqualsGroupedQueryAttentionOverTheWholeSequence) {
  MirroredStrategy strategy(cpu_devices(ranks()), context_options(ranks()));
  for (const int64_t kv_heads : few_if_sanitized(std::vector<int64_t>{3, 1, 2, 4, 6}, 1)) {
    SCOPED_TRACE(testing::Message() << kv_heads << " kv_heads");
    const AttentionSizes sizes{.heads = 12, .kv_heads = kv_heads, .tokens = 21, .head_dim = 6};
    expect_attention(strategy, WholeAttention(sizes, options().is_causal), options(), TokenOrder::kZigzag,
                     1e-12);
  }
}

TEST_P(ContextAttention, TakesAScaleAndShorterTypes) {
  MirroredStrategy strategy(cpu_devices(ranks()), context_options(ranks()));
  auto scaled = options();
  scaled.scale = 0.3;
  const AttentionSizes sizes{.heads = 12, .kv_heads = 4, .tokens = 29};
  expect_attention(strategy, WholeAttention(sizes, scaled.is_causal, 0.3), scaled, TokenOrder::kZigzag,
                   1e-12);
  expect_attention(strategy, WholeAttention(sizes, scaled.is_causal, 0.3, torch::kFloat), scaled,
                   TokenOrder::kZigzag, 2e-5);
  expect_attention(strategy, WholeAttention(sizes, scaled.is_causal, 0.3, torch::kBFloat16), scaled,
                   TokenOrder::kZigzag, 0.15);
}

TEST_P(ContextAttention, EqualsAttentionOverTheWholeSequenceOverWorkers) {
  const AttentionSizes sizes{.heads = 12, .kv_heads = 4, .tokens = 37, .head_dim = 7};
  const WholeAttention whole(sizes, options().is_causal);
  std::vector<std::vector<int>> layouts{std::vector<int>(static_cast<size_t>(ranks()), 1)};
  if (ranks() > 1) layouts.push_back({ranks() - 1, 1});
  for (const auto& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          expect_attention(strategy, whole, options(), TokenOrder::kZigzag, 1e-12);
        },
        [&](int, WorkerSetUp& set_up) { set_up.options = context_options(ranks()); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ContextAttention,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(ContextMethod::kRing, ContextMethod::kAllToAll),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == ContextMethod::kRing ? "Ring" : "AllToAll") +
                                  (std::get<2>(info.param) ? "Causal" : "");
                         });

/// Returns the message of the error that forward throws on two ranks.
std::string refusal(const ContextParallelAttentionOptions& options, const std::vector<torch::Tensor>& inputs,
                    int64_t tokens, int order_ranks = 2) {
  MirroredStrategy strategy(cpu_devices(2), context_options(2));
  auto attention = strategy.scope(
      [&](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context"), options); });
  return message_of<InvalidArgument>([&] {
    strategy.run(
        [&](ReplicaContext& replica, ContextParallelAttention& own) {
          const int index = replica.axis("context").index();
          own(inputs[0], inputs[1], inputs[2],
              ContextOrder({.length = tokens, .ranks = order_ranks, .index = index}));
        },
        attention);
  });
}

TEST(ContextAttentionTest, RefusesHeadsThatTheRanksDoNotDivideWithNumbersThatWouldDo) {
  const auto q = torch::zeros({1, 5, 4, 2});
  EXPECT_THAT(
      refusal({.method = ContextMethod::kAllToAll}, {q, q, q}, 8),
      AllOf(HasSubstr("[ContextParallelAttention] expected heads that the 2 ranks along the axis context"),
            HasSubstr("but got 5: 4 or 6 would do")));
}

TEST(ContextAttentionTest, RefusesShapesAndOrdersThatDoNotFit) {
  const auto q = torch::zeros({1, 4, 4, 2});
  const auto shape = [&](int64_t heads, int64_t tokens, int64_t head_dim) {
    return torch::zeros({1, heads, tokens, head_dim});
  };
  const ContextParallelAttentionOptions ring;
  EXPECT_THAT(refusal(ring, {q, q, q[0]}, 8), HasSubstr("and v Float [4, 4, 2]"));
  EXPECT_THAT(refusal(ring, {q, shape(4, 4, 3), shape(4, 4, 3)}, 8), HasSubstr("[batch, kv_heads"));
  EXPECT_THAT(refusal(ring, {q, shape(3, 4, 2), shape(3, 4, 2)}, 8),
              HasSubstr("kv_heads that divide the heads of q"));
  EXPECT_THAT(refusal(ring, {q, q, q.to(torch::kDouble)}, 8), HasSubstr("one floating-point dtype"));
  EXPECT_THAT(refusal(ring, {q, q, q}, 10), HasSubstr("5 tokens, this rank's of 10"));
  EXPECT_THAT(refusal(ring, {q, q, q}, 12, 3), HasSubstr("of 2 along the axis context"));
}

TEST(ContextAttentionTest, RefusesAxesWithOtherRolesAndLayersThatAreCutAlongItsOwn) {
  MirroredStrategy strategy(cpu_devices(4), {.intra_op_threads = 1, .mesh = {{"data", 2}, {"tensor", 2}}});
  for (const char* axis : {"data", "tensor"}) {
    const auto message = message_of<InvalidArgument>([&] {
      strategy.scope([&](ReplicaContext& replica) { return ContextParallelAttention(replica.axis(axis)); });
    });
    EXPECT_THAT(message, AllOf(HasSubstr("expected an axis along which sequences are cut, such as context"),
                               HasSubstr(axis)));
  }
  MirroredStrategy other(cpu_devices(2), context_options(2));
  const auto message = message_of<InvalidArgument>([&] {
    other.scope([&](ReplicaContext& replica) {
      return std::make_shared<ParallelAxis>("Layer", replica.axis("context"));
    });
  });
  EXPECT_THAT(message, HasSubstr("but got context, which cuts sequences: its ranks have different tokens"));
}

TEST(ContextAttentionTest, RefusesSecondDerivativesAndChangedOutputs) {
  MirroredStrategy strategy(cpu_devices(1), context_options(1));
  auto attention = strategy.scope(
      [](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context")); });
  strategy.run(
      [](ReplicaContext&, ContextParallelAttention& own) {
        const auto q = torch::rand({1, 2, 4, 3}).requires_grad_();
        const ContextOrder order = own->order(4);
        const auto twice = own(q, q, q, order).sum();
        EXPECT_THAT(message_of<InvalidArgument>([&] {
                      torch::autograd::grad({twice}, {q}, {}, std::nullopt, /*create_graph=*/true);
                    }),
                    HasSubstr("there are no second derivatives"));
        auto out = own(q, q, q, order);
        const auto loss = (out * 1).sum();
        {
          const torch::NoGradGuard no_grad;
          out.mul_(2);
        }
        EXPECT_THROW(loss.backward(), c10::Error);
      },
      attention);
}

TEST(ContextAttentionTest, ComputesInTheTypeOfAutocast) {
  MirroredStrategy strategy(cpu_devices(2), context_options(2));
  const WholeAttention whole({.tokens = 12}, /*is_causal=*/true, std::nullopt, torch::kFloat);
  for (const auto method : {ContextMethod::kRing, ContextMethod::kAllToAll}) {
    auto attention = strategy.scope([&](ReplicaContext& replica) {
      return ContextParallelAttention(replica.axis("context"),
                                      ContextParallelAttentionOptions{.method = method, .is_causal = true});
    });
    strategy.run(
        [&](ReplicaContext& replica, ContextParallelAttention& own) {
          const ContextOrder order = own->order(12);
          const auto q = own_leaf(order, whole.q);
          torch::Tensor out;
          {
            const auto cast = replica.autocast(torch::kBFloat16);
            out = own(q, own_leaf(order, whole.k), own_leaf(order, whole.v).to(torch::kBFloat16), order);
          }
          EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
          expect_near(out, order.own_part(whole.out.detach(), 2), 0.05);
          (out * order.own_part(whole.weights, 2)).sum().backward();
          EXPECT_EQ(q.grad().scalar_type(), torch::kFloat);
          expect_near(q.grad(), order.own_part(whole.q.grad(), 2), 0.15);
        },
        attention);
  }
}

TEST(ContextAttentionTest, RanksWithDifferentOrdersGetAnError) {
  MirroredStrategy strategy(cpu_devices(2), context_options(2));
  auto attention = strategy.scope(
      [](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context")); });
  EXPECT_THROW(strategy.run(
                   [](ReplicaContext& replica, ContextParallelAttention& own) {
                     const ContextOrder order(replica.axis("context"), 8 + 2 * replica.rank());
                     const auto q = torch::zeros({1, 1, order.tokens_of(order.index()), 2});
                     own(q, q, q, order);
                   },
                   attention),
               CollectiveMismatch);
}

}  // namespace
}  // namespace lockstep
