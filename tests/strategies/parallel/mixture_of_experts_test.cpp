// A layer of experts on one device. Oracle: loops over tokens and their experts.
#include "lockstep/strategies/parallel/mixture_of_experts.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/strategies/parallel/expert_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kExact = 1e-12;

MixtureOfExpertsOptions small_mixture() {
  return {.features = 6, .hidden_features = 10, .num_experts = 4};
}

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  TORCH_CHECK(a.sizes() == b.sizes(), a.sizes(), " ", b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

/// Sends the tokens of a sequence to experts: token t has its largest logit for firsts[t], and the next for
/// the one after it.
torch::Tensor tokens_for(const std::vector<int64_t>& firsts, int64_t experts) {
  auto tokens = torch::zeros({static_cast<int64_t>(firsts.size()), experts}, torch::kDouble);
  for (size_t token = 0; token < firsts.size(); ++token) {
    tokens[static_cast<int64_t>(token)][firsts[token]] = 3;
    tokens[static_cast<int64_t>(token)][(firsts[token] + 1) % experts] = 2;
  }
  return tokens;
}

/// A layer whose router passes the features on as logits.
MixtureOfExperts sorting_experts(const MixtureOfExpertsOptions& options) {
  auto experts = wave_experts(options);
  const torch::NoGradGuard no_grad;
  experts->named_parameters()["router.weight"].copy_(torch::eye(options.num_experts, torch::kDouble));
  return experts;
}

struct Case {
  std::string name;
  MixtureOfExpertsOptions options;
};

class MixtureCases : public ::testing::TestWithParam<Case> {};

TEST_P(MixtureCases, EqualsALoopOverTokensAndExperts) {
  const auto& options = GetParam().options;
  auto layer = wave_experts(options);
  const PlainExperts plain(layer, options);
  const auto values = wave_values({3, 5, options.features}, 2) * 4;
  const auto weights = wave_values({3, 5, options.features}, 4);
  const auto loss_of = [&](const MixtureOutput& mixed) {
    return (mixed.output * weights).sum() + (mixed.balance_loss * torch::arange(1, 4)).sum() * 0.3 +
           (mixed.z_loss * torch::arange(2, 5)).sum() * 0.2;
  };
  auto x = values.clone().requires_grad_();
  auto plain_x = values.clone().requires_grad_();
  const auto mixed = layer->forward(x);
  const auto expected = plain.forward(plain_x);
  EXPECT_LE(largest_difference(mixed.output, expected.output), kExact);
  EXPECT_LE(largest_difference(mixed.balance_loss, expected.balance_loss), kExact);
  EXPECT_LE(largest_difference(mixed.z_loss, expected.z_loss), kExact);
  loss_of(mixed).backward();
  loss_of(expected).backward();
  EXPECT_LE(largest_difference(x.grad(), plain_x.grad()), kExact);
  for (const auto& item : layer->named_parameters()) {
    const auto gradient = plain.at(item.key()).grad();
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_LE(largest_difference(item.value().grad(),
                                 gradient.defined() ? gradient : torch::zeros_like(item.value())),
              kExact)
        << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, MixtureCases,
    ::testing::Values(
        Case{"two_of_four", small_mixture()},
        Case{"switch", {.features = 6, .hidden_features = 10, .num_experts = 4, .experts_per_token = 1}},
        Case{"swiglu_without_bias",
             {.features = 6,
              .hidden_features = 10,
              .num_experts = 4,
              .experts_per_token = 3,
              .activation = ExpertActivation::kSwiGlu,
              .bias = false}},
        Case{"shared_swiglu",
             {.features = 6,
              .hidden_features = 5,
              .num_experts = 6,
              .num_shared_experts = 2,
              .activation = ExpertActivation::kSwiGlu}},
        Case{"tanh_not_normalized",
             {.features = 6,
              .hidden_features = 10,
              .num_experts = 3,
              .num_shared_experts = 1,
              .activation = ExpertActivation::kGeluTanh,
              .normalizes = false}},
        Case{"all_of_two", {.features = 4, .hidden_features = 3, .num_experts = 2}},
        Case{"one_expert", {.features = 4, .hidden_features = 3, .num_experts = 1, .experts_per_token = 1}}),
    [](const auto& info) { return info.param.name; });

TEST(MixtureOfExpertsTest, BalanceLossIsOneForEvenLoadAndGrowsWithTheLargest) {
  MixtureOfExpertsOptions options{
      .features = 4, .hidden_features = 3, .num_experts = 4, .experts_per_token = 1};
  auto layer = sorting_experts(options);
  const auto even = layer->forward(tokens_for({0, 1, 2, 3}, 4));
  EXPECT_NEAR(even.balance_loss.item<double>(), 1, kExact);
  const auto all_to_one = layer->forward(tokens_for({2, 2, 2, 2}, 4) * 100);
  EXPECT_NEAR(all_to_one.balance_loss.item<double>(), 4, kExact);
  const auto statistics = layer->statistics();
  EXPECT_TRUE(torch::equal(statistics.load, torch::tensor({1, 1, 5, 1})));
  EXPECT_EQ(statistics.dropped.sum().item<int64_t>(), 0);
}

TEST(MixtureOfExpertsTest, AnExpertWithoutTokensHasZeroGradients) {
  MixtureOfExpertsOptions options{
      .features = 4, .hidden_features = 3, .num_experts = 4, .experts_per_token = 1};
  auto layer = sorting_experts(options);
  layer->forward(tokens_for({2, 2, 2}, 4)).output.sum().backward();
  const auto gradient = layer->named_parameters()["up.weight"].grad();
  EXPECT_EQ(gradient[0].abs().max().item<double>(), 0);
  EXPECT_GT(gradient[2].abs().max().item<double>(), 0);
}

TEST(MixtureOfExpertsTest, DropsTheLastTokensOfASequenceThatAnExpertHasNoRoomFor) {
  // 1.0 * 1 * 6 / 3: two tokens for each expert.
  MixtureOfExpertsOptions options{
      .features = 3, .hidden_features = 5, .num_experts = 3, .experts_per_token = 1, .capacity_factor = 1.0};
  auto layer = sorting_experts(options);
  const auto input = torch::stack({tokens_for({1, 1, 0, 1, 1, 2}, 3), tokens_for({0, 0, 0, 1, 1, 1}, 3)});
  const auto mixed = layer->forward(input);
  layer->eval();
  const auto whole = layer->forward(input).output;
  const auto is_kept = torch::tensor({1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0}).view({2, 6, 1});
  EXPECT_LE(largest_difference(mixed.output, whole * is_kept), kExact);
  EXPECT_GT(whole.abs().sum(-1).min().item<double>(), 0.1);
  const auto statistics = layer->statistics();  // those of training
  EXPECT_TRUE(torch::equal(statistics.load, torch::tensor({4, 7, 1})));
  EXPECT_TRUE(torch::equal(statistics.dropped, torch::tensor({1, 3, 0})));
  layer->reset_statistics();
  EXPECT_EQ(layer->statistics().load.sum().item<int64_t>(), 0);
}

TEST(MixtureOfExpertsTest, ATokenKeepsTheExpertsThatHaveRoom) {
  // 1.0 * 2 * 3 / 3: two tokens for each expert. All of them choose 0 and 1.
  MixtureOfExpertsOptions options{
      .features = 3, .hidden_features = 5, .num_experts = 3, .capacity_factor = 1.0};
  auto layer = sorting_experts(options);
  const auto input = torch::tensor({{3.0, 2.0, 0.0}, {3.0, 0.0, 2.0}, {3.0, 2.0, 0.0}}, torch::kDouble);
  const auto mixed = layer->forward(input).output;
  const PlainExperts plain(layer, options);
  // The last one has expert 1 alone, with the weight that it has beside expert 0.
  const double weight = std::exp(2.0) / (std::exp(2.0) + std::exp(3.0));
  EXPECT_LE(largest_difference(mixed[2], plain.mlp(input[2], "", 1) * weight), kExact);
  EXPECT_LE(largest_difference(mixed[0], plain.forward(input.unsqueeze(0)).output[0][0]), kExact);
}

TEST(MixtureOfExpertsTest, LaterTokensDoNotChangeEarlierOnes) {
  MixtureOfExpertsOptions options = small_mixture();
  options.capacity_factor = 0.6;
  auto layer = wave_experts(options);
  const auto input = wave_values({2, 12, 6}, 3) * 4;
  auto changed = input.clone();
  changed.slice(1, 7).copy_(wave_values({2, 5, 6}, 9) * 4);
  const auto before = layer->forward(input).output;
  EXPECT_GT(layer->statistics().dropped.sum().item<int64_t>(), 0);
  const auto after = layer->forward(changed).output;
  EXPECT_TRUE(torch::equal(before.slice(1, 0, 7), after.slice(1, 0, 7)));
  EXPECT_FALSE(torch::equal(before, after));
}

TEST(MixtureOfExpertsTest, SequencesDoNotChangeEachOther) {
  MixtureOfExpertsOptions options = small_mixture();
  options.capacity_factor = 0.6;
  auto layer = wave_experts(options);
  const auto input = wave_values({5, 8, 6}, 3) * 4;
  const auto together = layer->forward(input);
  for (int64_t sequence = 0; sequence < 5; ++sequence) {
    const auto alone = layer->forward(input[sequence]);
    EXPECT_LE(largest_difference(alone.output, together.output[sequence]), kExact);
    EXPECT_LE(largest_difference(alone.balance_loss, together.balance_loss[sequence]), kExact);
    EXPECT_LE(largest_difference(alone.z_loss, together.z_loss[sequence]), kExact);
  }
}

TEST(MixtureOfExpertsTest, TakesABatchWithoutSequences) {
  auto layer = wave_experts(small_mixture());
  const auto mixed = layer->forward(torch::zeros({0, 8, 6}, torch::kDouble));
  EXPECT_EQ(mixed.output.sizes(), at::IntArrayRef({0, 8, 6}));
  (mixed.output.sum() + mixed.balance_loss.sum() + mixed.z_loss.sum()).backward();
  for (const auto& parameter : layer->parameters()) EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
}

TEST(MixtureOfExpertsTest, TheRouterComputesInFloat32UnderAutocast) {
  auto layer = wave_experts(small_mixture());
  layer->to(torch::kFloat);
  const auto input = wave_values({2, 8, 6}, 3).to(torch::kFloat);
  const auto expected = layer->forward(input);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto mixed = layer->forward(input);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(torch::equal(mixed.z_loss, expected.z_loss));
  EXPECT_TRUE(torch::equal(mixed.balance_loss, expected.balance_loss));
  EXPECT_EQ(mixed.output.scalar_type(), torch::kFloat);
  const double difference = largest_difference(mixed.output, expected.output);
  EXPECT_GT(difference, 0);  // experts compute in bfloat16
  EXPECT_LT(difference, 0.05);
}

TEST(MixtureOfExpertsTest, AClonedLayerComputesTheSame) {
  MixtureOfExpertsOptions options = small_mixture();
  options.num_shared_experts = 1;
  auto layer = wave_experts(options);
  const auto copy = std::dynamic_pointer_cast<MixtureOfExpertsImpl>(layer->clone());
  const auto input = wave_values({2, 8, 6}, 3);
  EXPECT_TRUE(torch::equal(copy->forward(input).output, layer->forward(input).output));
  EXPECT_EQ(copy->statistics().load.sum().item<int64_t>(), 32);
}

TEST(MixtureOfExpertsTest, NamesTheRouterWhoseNumbersAreNotFinite) {
  auto options = small_mixture();
  auto layer = wave_experts(options);
  auto input = wave_values({2, 8, 6}, 3);
  input[1][2][0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of<std::domain_error>([&] { layer->forward(input); }),
              AllOf(HasSubstr("[MixtureOfExperts]"), HasSubstr("for 1 of 16 tokens they are NaN")));
  options.refuses_not_finite = false;
  auto quiet = wave_experts(options);
  const auto mixed = quiet->forward(input);
  EXPECT_EQ(quiet->statistics().not_finite, 1);
  EXPECT_EQ(quiet->statistics().finite_calls, 0);
  EXPECT_TRUE(mixed.output[1][2].isnan().all().item<bool>());
  EXPECT_TRUE(mixed.balance_loss.isnan()[1].item<bool>());
  EXPECT_TRUE(mixed.output[0].isfinite().all().item<bool>());
}

TEST(MixtureOfExpertsTest, CountsTheCallsBeforeItsNumbersWereNotFinite) {
  auto options = small_mixture();
  options.refuses_not_finite = false;
  auto layer = wave_experts(options);
  const auto input = wave_values({2, 8, 6}, 3);
  auto bad = input.clone();
  bad[0][0][0] = std::numeric_limits<double>::infinity();
  for (const auto& x : {input, input, bad, input, bad}) layer->forward(x);
  EXPECT_EQ(layer->statistics().finite_calls, 2);
  layer->reset_statistics();
  layer->forward(input);
  EXPECT_EQ(layer->statistics().finite_calls, 1);
  EXPECT_EQ(layer->statistics().not_finite, 0);
}

TEST(MixtureOfExpertsTest, RefusesNumbersThatDoNotFit) {
  const auto refused = [](const MixtureOfExpertsOptions& options) {
    return message_of<InvalidArgument>([&] { MixtureOfExperts layer(options); });
  };
  EXPECT_THAT(refused({.features = 4, .hidden_features = 4, .num_experts = 4, .experts_per_token = 5}),
              HasSubstr("[MixtureOfExperts] expected experts_per_token from 1 to the 4 experts, but got 5"));
  EXPECT_THAT(refused({.features = 4, .hidden_features = 4, .num_experts = 0}),
              HasSubstr("num_experts of 1 or more, but got 0"));
  EXPECT_THAT(refused({.features = 0, .hidden_features = 4, .num_experts = 2}), HasSubstr("0 and 4"));
  EXPECT_THAT(refused({.features = 4, .hidden_features = 4, .num_experts = 2, .capacity_factor = -1.0}),
              HasSubstr("capacity_factor above 0, but got -1"));
  EXPECT_THAT(refused({.features = 4, .hidden_features = 4, .num_experts = 2, .num_shared_experts = -1}),
              HasSubstr("num_shared_experts of 0 or more, but got -1"));
  auto layer = wave_experts(small_mixture());
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                layer->forward(torch::zeros({3, 5}, torch::kDouble));
              }),
              HasSubstr("expected an input of [..., tokens, 6], but got [3, 5]"));
  EXPECT_THROW(layer->forward(torch::zeros({6}, torch::kDouble)), InvalidArgument);
  EXPECT_THROW(layer->forward(torch::zeros({2, 0, 6}, torch::kDouble)), InvalidArgument);
}

TEST(MixtureOfExpertsTest, RefusesAnAxisThatDoesNotDivideTheExpertsOrDoesNotCutTheBatch) {
  const auto refused = [](const Mesh& mesh, const std::string& axis) {
    MirroredStrategy strategy(cpu_devices(mesh.size()), {.intra_op_threads = 1, .mesh = mesh});
    return message_of<InvalidArgument>([&] {
      strategy.scope([&](ReplicaContext& replica) {
        return MixtureOfExperts(
            replica.axis(axis),
            MixtureOfExpertsOptions{.features = 4, .hidden_features = 4, .num_experts = 8});
      });
    });
  };
  EXPECT_THAT(
      refused({{"expert", 3}}, "expert"),
      HasSubstr("[MixtureOfExperts] expected num_experts that the 3 ranks along the axis expert divide, "
                "but got 8: 6 or 9 would do"));
  EXPECT_THAT(
      refused({{"tensor", 2}}, "tensor"),
      HasSubstr("[MixtureOfExperts] expected an axis that cuts the batch, such as expert or data, but "
                "got tensor, along which models are cut"));
  EXPECT_THAT(refused({{"context", 2}}, "context"), HasSubstr("which cuts sequences"));
}

}  // namespace
}  // namespace lockstep
