// A layer of experts of which the ranks along a context axis have different tokens of each sequence. Oracle:
// the layer with whole sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/tests/strategies/parallel/expert_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr double kSameSums = 1e-12;
constexpr int64_t kSequences = 3;

MixtureOfExpertsOptions mixture_with(std::optional<double> capacity_factor) {
  return {.features = 6, .hidden_features = 10, .num_experts = 4, .capacity_factor = capacity_factor};
}

/// The values of a rank after forward and backward.
struct RankResult {
  torch::Tensor output, balance_loss, z_loss, gradient_of_input, load, dropped;
  std::vector<torch::Tensor> gradients;
};

RankResult result_of(MixtureOfExperts& layer, const torch::Tensor& input, const torch::Tensor& weights,
                     const ContextOrder* order) {
  auto x = input.clone().requires_grad_();
  const auto mixed = order != nullptr ? layer->mix(x, /*is_training=*/true, *order) : layer->forward(x);
  const auto factors = torch::arange(1, kSequences + 1);
  ((mixed.output * weights).sum() + (mixed.balance_loss * factors).sum() * 0.3 +
   (mixed.z_loss * (factors + 1)).sum() * 0.2)
      .backward();
  RankResult result{.output = mixed.output.detach(),
                    .balance_loss = mixed.balance_loss.detach(),
                    .z_loss = mixed.z_loss.detach(),
                    .gradient_of_input = x.grad(),
                    .load = layer->statistics().load,
                    .dropped = layer->statistics().dropped,
                    .gradients = {}};
  for (const auto& parameter : layer->parameters()) result.gradients.push_back(parameter.grad());
  return result;
}

double difference_of(const torch::Tensor& a, const torch::Tensor& b) {
  TORCH_CHECK(a.sizes() == b.sizes(), a.sizes(), " ", b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

using Shares = std::tuple<int, TokenOrder, int64_t>;  // ranks, order, length

class SharedSequences : public ::testing::TestWithParam<Shares> {};

TEST_P(SharedSequences, GiveWhatWholeOnesGive) {
  const auto& [ranks, token_order, length] = GetParam();
  const auto input = wave_values({kSequences, length, 6}, 3) * 4;
  const auto weights = wave_values({kSequences, length, 6}, 5);
  for (const std::optional<double>& capacity_factor : {std::optional<double>(), std::optional(0.6)}) {
    auto whole = wave_experts(mixture_with(capacity_factor));
    const auto expected = result_of(whole, input, weights, nullptr);
    MirroredStrategy strategy(
        cpu_devices(ranks),
        {.intra_op_threads = 1, .mesh = Mesh{{"context", ranks}}, .timeout = std::chrono::minutes(2)});
    auto layers = strategy.scope([&](ReplicaContext& replica) {
      auto layer = wave_experts(mixture_with(capacity_factor));
      layer->share_sequences(replica.axis("context"));
      return layer;
    });
    const auto results = strategy.run(
        [&, order_of_tokens = token_order, tokens = length](ReplicaContext& replica,
                                                            MixtureOfExperts& layer) {
          const ContextOrder order(replica.axis("context"), tokens, order_of_tokens);
          return result_of(layer, order.own_part(input, 1), order.own_part(weights, 1), &order);
        },
        layers);
    RankResult sum;
    std::vector<torch::Tensor> outputs, gradients_of_input;
    const auto add = [](torch::Tensor& to, const torch::Tensor& own) { to = to.defined() ? to + own : own; };
    for (const auto& own : results.local_values()) {
      outputs.push_back(own.output);
      gradients_of_input.push_back(own.gradient_of_input);
      add(sum.balance_loss, own.balance_loss);
      add(sum.z_loss, own.z_loss);
      add(sum.load, own.load);
      add(sum.dropped, own.dropped);
      sum.gradients.resize(own.gradients.size());
      for (size_t i = 0; i < own.gradients.size(); ++i) add(sum.gradients[i], own.gradients[i]);
    }
    const ContextOrder order({.length = length, .ranks = ranks, .order = token_order});
    EXPECT_LE(difference_of(order.restore(torch::cat(outputs, 1), 1), expected.output), kSameSums);
    EXPECT_LE(difference_of(order.restore(torch::cat(gradients_of_input, 1), 1), expected.gradient_of_input),
              kSameSums);
    EXPECT_LE(difference_of(sum.balance_loss, expected.balance_loss), kSameSums);
    EXPECT_LE(difference_of(sum.z_loss, expected.z_loss), kSameSums);
    EXPECT_TRUE(torch::equal(sum.load, expected.load));
    EXPECT_TRUE(torch::equal(sum.dropped, expected.dropped));
    for (size_t i = 0; i < expected.gradients.size(); ++i)
      EXPECT_LE(difference_of(sum.gradients[i], expected.gradients[i]), kSameSums) << i;
    if (capacity_factor && length > 4) {
      EXPECT_GT(expected.dropped.sum().item<int64_t>(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, SharedSequences,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values(TokenOrder::kPlain, TokenOrder::kZigzag),
                                            ::testing::Values(1, 3, 11, 16)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "_ranks_" +
                                  (std::get<1>(info.param) == TokenOrder::kPlain ? "plain_" : "zigzag_") +
                                  std::to_string(std::get<2>(info.param)) + "_tokens";
                         });

TEST(SharedSequencesTest, OrdersAndInputsThatDoNotFitAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = Mesh{{"context", 2}}});
  auto layers = strategy.scope([&](ReplicaContext& replica) {
    auto layer = wave_experts(mixture_with({}));
    layer->share_sequences(replica.axis("context"));
    return layer;
  });
  const auto refused = [&](const ContextOrderOptions& options, int64_t tokens) {
    return message_of<InvalidArgument>([&] {
      strategy.run(
          [&](ReplicaContext&, MixtureOfExperts& layer) {
            layer->mix(wave_values({1, tokens, 6}, 3), true, ContextOrder(options));
          },
          layers);
    });
  };
  EXPECT_THAT(refused({.length = 9, .ranks = 4, .index = 1}, 2),
              HasSubstr("of 2, but got that of rank 1 of 4"));
  auto alone = wave_experts(mixture_with({}));
  const ContextOrder order({.length = 8, .ranks = 2});
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                alone->mix(wave_values({1, 4, 6}, 3), true, order);
              }),
              HasSubstr("expected the order of rank 0 of 1, but got that of rank 0 of 2"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [&](ReplicaContext& replica, MixtureOfExperts& layer) {
                      layer->mix(wave_values({1, 8, 6}, 3), true, ContextOrder(replica.axis("context"), 8));
                    },
                    layers);
              }),
              HasSubstr("expected the 4 tokens that this rank has of sequences of 8, but got an input of "
                        "[1, 8, 6]"));
}

TEST(SharedSequencesTest, AnAxisThatIsNoContextAxisIsRefused) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = Mesh{{"data", 2}}});
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) {
                  auto layer = wave_experts(mixture_with({}));
                  layer->share_sequences(replica.axis("data"));
                  return layer;
                });
              }),
              HasSubstr("expected an axis"));
}

}  // namespace
}  // namespace lockstep
