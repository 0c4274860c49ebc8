// Values and gradients with recompute() are those without it.
#include "lockstep/strategies/nn/recompute.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/internal/replica_random.h"
#include "lockstep/tests/strategies/nn/recompute_cases.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

torch::Tensor random_state() {
  return at::globalContext().defaultGenerator(torch::kCPU).get_state();
}

/// Everything that a step computes: the result, the gradients of the input and the parameters, and the random
/// states after forward and after backward.
struct Step {
  std::vector<torch::Tensor> values;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> random_states;
};

Step step_of(Recomputes recomputes, int micro_batches = 1) {
  torch::manual_seed(3);
  StackOfBlocks stack(recomputes);
  Step step;
  auto x = torch::randn({6, 4}, torch::kDouble).requires_grad_();
  for (int i = 0; i < micro_batches; ++i) {
    const auto y = stack->forward(x + i);
    step.random_states.push_back(random_state());
    y.square().sum().backward();
    step.random_states.push_back(random_state());
    step.values.push_back(y.detach());
  }
  step.gradients.push_back(x.grad());
  for (const auto& parameter : stack->parameters()) step.gradients.push_back(parameter.grad());
  return step;
}

void expect_same_step(const Step& step, const Step& expected) {
  EXPECT_TRUE(bit_equal(step.values, expected.values));
  EXPECT_LE(largest_difference(step.gradients, expected.gradients), kRounding);
  EXPECT_TRUE(bit_equal(step.random_states, expected.random_states));
}

TEST(RecomputeTest, GivesValuesAndGradientsOfPlainExecutionWithDropout) {
  expect_same_step(step_of(Recomputes::kEachBlock), step_of(Recomputes::kNothing));
  expect_same_step(step_of(Recomputes::kPairs), step_of(Recomputes::kNothing));
}

TEST(RecomputeTest, CanBeNested) {
  expect_same_step(step_of(Recomputes::kPairsAndTheirBlocks), step_of(Recomputes::kNothing));
}

TEST(RecomputeTest, AccumulatesGradientsOverMicroBatches) {
  expect_same_step(step_of(Recomputes::kEachBlock, 3), step_of(Recomputes::kNothing, 3));
}

TEST(RecomputeTest, DrawsTheSameNumbersAgainOnceForEachBackward) {
  std::vector<torch::Tensor> masks;
  auto x = torch::ones({50}, torch::kDouble).requires_grad_();
  const auto masked = [&](const torch::Tensor& in) {
    masks.push_back(torch::bernoulli(torch::full({50}, 0.5, torch::kDouble)));
    return in * masks.back();
  };
  const auto y = recompute(masked, x);
  const auto drawn_between = torch::rand({1});
  const auto before = random_state();
  y.sum().backward();
  ASSERT_EQ(masks.size(), 2U);
  EXPECT_TRUE(masks[0].equal(masks[1]));
  EXPECT_TRUE(x.grad().equal(masks[0]));
  EXPECT_TRUE(random_state().equal(before));
}

TEST(RecomputeTest, LeavesRandomStatesAloneIfAskedTo) {
  std::vector<torch::Tensor> drawn;
  auto x = torch::ones({50}, torch::kDouble).requires_grad_();
  const auto noisy = [&](const torch::Tensor& in) {
    drawn.push_back(torch::rand({50}));
    return in * 2;
  };
  recompute({.restores_random_state = false}, noisy, x).sum().backward();
  ASSERT_EQ(drawn.size(), 2U);
  EXPECT_FALSE(drawn[0].equal(drawn[1]));
}

struct AutocastCase {
  std::string name;
  bool keeps_casted_weights;
};

class RecomputeAutocastTest : public testing::TestWithParam<AutocastCase> {};

// The second forward runs in backward, after the guard has ended.
TEST_P(RecomputeAutocastTest, ComputesInTheTypesOfTheFirstForward) {
  const auto train = [&](bool recomputes) {
    torch::manual_seed(3);
    const torch::nn::Linear twice(8, 8);
    std::vector<c10::ScalarType> dtypes;
    auto x = torch::randn({6, 8}).requires_grad_();
    const auto layer = [&](const torch::Tensor& in) {
      const auto y = torch::tanh(torch::nn::Linear(twice)(in));
      dtypes.push_back(y.scalar_type());
      return y;
    };
    torch::Tensor y = x;
    {
      const AutocastGuard cast(torch::kCPU, torch::kBFloat16);
      at::autocast::set_autocast_cache_enabled(GetParam().keeps_casted_weights);
      for (int i = 0; i < 2; ++i) y = recomputes ? recompute(layer, y) : layer(y);
      at::autocast::clear_cache();
    }
    y.to(torch::kFloat).sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
    EXPECT_EQ(dtypes, std::vector<c10::ScalarType>(recomputes ? 4 : 2, torch::kBFloat16));
    return std::vector<torch::Tensor>{y.detach(), x.grad(), twice->weight.grad(), twice->bias.grad()};
  };
  const auto plain = train(false);
  const auto recomputed = train(true);
  EXPECT_TRUE(recomputed[0].equal(plain[0]));
  EXPECT_TRUE(recomputed[1].equal(plain[1]));
  // With LibTorch's copies of weights, plain backward adds up in bfloat16: 8 bits.
  const double rounding = GetParam().keeps_casted_weights ? 1.0 / 128 : 1e-6;
  for (size_t i = 2; i < plain.size(); ++i)
    EXPECT_TRUE(torch::allclose(recomputed[i], plain[i], rounding, rounding)) << i;
}

INSTANTIATE_TEST_SUITE_P(Caches, RecomputeAutocastTest,
                         testing::Values(AutocastCase{"WithoutCopies", false},
                                         AutocastCase{"WithLibTorchsCopies", true}),
                         [](const auto& info) { return info.param.name; });

TEST(RecomputeTest, InputsNeedNotRequireGradients) {
  torch::manual_seed(3);
  ResidualBlock block(4, 0.0);
  const auto x = torch::randn({5, 4});
  const auto gradient_of = [&](bool recomputes) {
    block->zero_grad();
    (recomputes ? recompute(block, x) : block->forward(x)).square().sum().backward();
    return block->first->weight.grad();
  };
  const auto plain = gradient_of(false).clone();
  EXPECT_TRUE(gradient_of(true).allclose(plain));
}

TEST(RecomputeTest, ResultsHaveAGradientOnlyIfPlainOnesHaveOne) {
  const auto both = [](const torch::Tensor& x) {
    return std::make_tuple(x * 2, x.argmax(), torch::ones({2}), torch::Tensor());
  };
  const auto x = torch::randn({3});
  EXPECT_FALSE(std::get<0>(recompute(both, x)).requires_grad());
  const auto [doubled, index, constant, none] = recompute(both, torch::randn({3}).requires_grad_());
  EXPECT_TRUE(doubled.requires_grad());
  EXPECT_FALSE(index.requires_grad());
  EXPECT_FALSE(constant.requires_grad());
  EXPECT_FALSE(none.defined());
  doubled.sum().backward();
}

TEST(RecomputeTest, WithoutGradientsOnlyCallsTheFunction) {
  int calls = 0;
  auto x = torch::ones({3}).requires_grad_();
  const auto count = [&](const torch::Tensor& in) {
    ++calls;
    EXPECT_TRUE(in.is_same(x));
    return in * 2;
  };
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(recompute(count, x).requires_grad());
  EXPECT_EQ(calls, 1);
}

struct QueryAndKeys {
  torch::Tensor query;
  std::vector<torch::Tensor> keys;
  template <typename Visit>
  void for_each_tensor(const Visit& visit) {
    visit(query);
    for (auto& key : keys) visit(key);
  }
};

struct Attended {
  torch::Tensor sum;
  int count = 0;
  template <typename Visit>
  void for_each_tensor(const Visit& visit) {
    visit(sum);
  }
};

TEST(RecomputeTest, TakesAndReturnsStructuresAndOtherArguments) {
  const auto function = [](const QueryAndKeys& in, const std::pair<torch::Tensor, double>& scale,
                           const std::optional<torch::Tensor>& mask, const std::string& name,
                           const std::map<std::string, torch::Tensor>& extra) {
    auto sum = in.query * scale.second;
    for (const auto& key : in.keys) sum = sum + key * scale.first;
    if (mask) sum = sum * *mask;
    return std::make_tuple(Attended{sum + extra.at(name), static_cast<int>(in.keys.size())},
                           std::vector<torch::Tensor>{sum.exp(), sum.sum()});
  };
  const auto run = [&](bool recomputes) {
    torch::manual_seed(5);
    std::vector<torch::Tensor> leaves;
    for (int i = 0; i < 5; ++i) leaves.push_back(torch::randn({3}, torch::kDouble).requires_grad_());
    const QueryAndKeys in{leaves[0], {leaves[1], leaves[2]}};
    const std::pair<torch::Tensor, double> scale{leaves[3], 0.5};
    const std::optional<torch::Tensor> mask = torch::tensor({1.0, 0.0, 1.0}, torch::kDouble);
    const std::map<std::string, torch::Tensor> extra{{"bias", leaves[4]}};
    const auto [attended, rest] = recomputes ? recompute(function, in, scale, mask, "bias", extra)
                                             : function(in, scale, mask, "bias", extra);
    EXPECT_EQ(attended.count, 2);
    (attended.sum.square().sum() + rest[0].sum() * rest[1]).backward();
    std::vector<torch::Tensor> results{attended.sum.detach(), rest[0].detach(), rest[1].detach()};
    for (const auto& leaf : leaves) results.push_back(leaf.grad());
    return results;
  };
  EXPECT_LE(largest_difference(run(true), run(false)), kRounding);
}

TEST(RecomputeTest, TakesHoldersPointersAndFunctions) {
  torch::manual_seed(3);
  torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Tanh());
  const auto x = torch::randn({2, 4});
  const auto expected = layers->forward(x);
  EXPECT_TRUE(recompute(layers, x).equal(expected));
  EXPECT_TRUE(recompute(layers.ptr(), x).equal(expected));
  const std::function<torch::Tensor(const torch::Tensor&)> function = [&](const torch::Tensor& in) {
    return layers->forward(in);
  };
  EXPECT_TRUE(recompute(function, x).equal(expected));
  EXPECT_TRUE(recompute([&] { return layers->forward(x); }).equal(expected));
  EXPECT_TRUE(
      recompute(static_cast<torch::Tensor (*)(const torch::Tensor&)>(torch::tanh), x).equal(x.tanh()));
}

TEST(RecomputeTest, HooksOfATensorUsedInSeveralPartsRunOnceWithItsWholeGradient) {
  torch::manual_seed(3);
  auto weight = torch::randn({4}, torch::kDouble).requires_grad_();
  const auto x = torch::randn({4}, torch::kDouble);
  const auto squared = [&](const torch::Tensor& in) { return torch::tanh(in * weight * weight + weight); };
  squared(squared(x)).sum().backward();
  const auto expected = weight.grad().clone();
  weight.mutable_grad().reset();
  std::vector<torch::Tensor> seen;
  weight.register_hook([&](const torch::Tensor& gradient) {
    seen.push_back(gradient.clone());
    return gradient * 10;
  });
  const auto y = recompute(squared, recompute(squared, x));
  y.sum().backward();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_LE(largest_difference({seen[0], weight.grad()}, {expected, 10 * expected}), kRounding);
}

TEST(RecomputeTest, GradientsFlowToCapturedTensorsWithAHistory) {
  torch::manual_seed(3);
  auto source = torch::randn({4}, torch::kDouble).requires_grad_();
  const auto x = torch::randn({4}, torch::kDouble).requires_grad_();
  const auto run = [&](bool recomputes) {
    source.mutable_grad().reset();
    x.mutable_grad().reset();
    auto captured = torch::exp(source);
    int hooks = 0;
    captured.register_hook([&hooks](const torch::Tensor&) { ++hooks; });
    const auto part = [captured](const torch::Tensor& in) { return torch::sin(in * captured) + captured; };
    const auto y = recomputes ? recompute(part, recompute(part, x)) : part(part(x));
    (y * captured).sum().backward();
    EXPECT_EQ(hooks, 1);
    return std::vector<torch::Tensor>{source.grad(), x.grad()};
  };
  const auto plain = run(false);
  EXPECT_LE(largest_difference(run(true), plain), kRounding);
}

TEST(RecomputeTest, ResultMayBeAnArgumentOrAParameterOrItsView) {
  const auto x = torch::ones({3}).requires_grad_();
  const auto weight = torch::ones({3}).requires_grad_();
  const auto [same, parameter, view] = recompute(
      [&](const torch::Tensor& in) {
        return std::make_tuple(in, weight, in.view({3, 1}));
      },
      x);
  (same.sum() + 2 * parameter.sum() + 3 * view.sum()).backward();
  EXPECT_TRUE(x.grad().equal(torch::full({3}, 4.0)));
  EXPECT_TRUE(weight.grad().equal(torch::full({3}, 2.0)));
}

TEST(RecomputeTest, ResultsMayBeChangedInPlace) {
  const auto x = torch::randn({3}, torch::kDouble).requires_grad_();
  auto y = recompute([](const torch::Tensor& in) { return in * 3; }, x);
  y.mul_(2);
  torch::relu_(y);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(6 * (x > 0).to(torch::kDouble)));
}

TEST(RecomputeTest, BackwardOfARetainedGraphGivesTheSameAgain) {
  torch::manual_seed(3);
  StackOfBlocks stack(Recomputes::kPairsAndTheirBlocks);
  const auto loss = stack->forward(torch::randn({6, 4}, torch::kDouble)).square().sum();
  const auto gradients = [&](bool retains) {
    stack->zero_grad();
    loss.backward({}, /*retain_graph=*/retains);
    std::vector<torch::Tensor> all;
    for (const auto& parameter : stack->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const auto first = gradients(true);
  EXPECT_TRUE(bit_equal(gradients(true), first));
  EXPECT_TRUE(bit_equal(gradients(false), first));
}

TEST(RecomputeTest, AutogradGradGivesGradientsOfArgumentsAndParametersAlone) {
  torch::manual_seed(3);
  const auto x = torch::randn({6, 4}, torch::kDouble).requires_grad_();
  StackOfBlocks stack(Recomputes::kNothing, 4, /*dropout_probability=*/0);
  const auto weight = stack->parameters()[0];
  const auto loss_of = [&](Recomputes recomputes) {
    stack->recomputes = recomputes;
    return stack->forward(x).square().sum();
  };
  const auto expected = torch::autograd::grad({loss_of(Recomputes::kNothing)}, {x, weight});
  const auto gradients = torch::autograd::grad({loss_of(Recomputes::kPairsAndTheirBlocks)}, {x, weight});
  EXPECT_LE(largest_difference(gradients, expected), kRounding);
  for (const auto& parameter : stack->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

TEST(RecomputeTest, BackwardMayRunInAnotherThread) {
  const auto step = [](bool in_thread) {
    torch::manual_seed(3);
    StackOfBlocks stack(Recomputes::kPairsAndTheirBlocks);
    const auto generator = at::globalContext().defaultGenerator(torch::kCPU).clone();
    torch::Tensor loss;
    {
      const ReplicaRandomGuard in_replica(generator);
      loss = stack->forward(torch::ones({6, 4}, torch::kDouble)).square().sum();
    }
    const auto state = generator.get_state();
    if (in_thread) {
      std::thread([&] { loss.backward(); }).join();
    } else {
      loss.backward();
    }
    EXPECT_TRUE(generator.get_state().equal(state));
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : stack->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  EXPECT_TRUE(bit_equal(step(true), step(false)));
}

}  // namespace
}  // namespace lockstep
