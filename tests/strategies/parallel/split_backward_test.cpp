// Oracle: torch::autograd::grad().
#include "lockstep/strategies/parallel/internal/split_backward.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <vector>

#include "lockstep/strategies/nn/recompute.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor drawn(at::IntArrayRef sizes, bool requires_grad = true) {
  return torch::randn(sizes, torch::kDouble).set_requires_grad(requires_grad);
}

/// Expects both halves to return what backward returns as a whole, bit by bit. Returns whether it was split.
bool expect_halves(const std::function<torch::Tensor(const torch::Tensor&)>& function, const torch::Tensor& x,
                   const Tensors& parameters) {
  const auto expected_of = function(x);
  const auto gradient = torch::randn_like(expected_of);
  Tensors inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const auto expected = torch::autograd::grad({expected_of}, inputs, {gradient}, /*retain_graph=*/false,
                                              /*create_graph=*/false, /*allow_unused=*/true);
  SplitBackward backward(function(x), x, parameters);
  const bool is_split = backward.is_split();
  const auto of_input = backward.inputs(gradient);
  const auto of_parameters = backward.weights();
  EXPECT_EQ(of_input.defined(), expected[0].defined());
  if (of_input.defined()) {
    EXPECT_TRUE(torch::equal(of_input, expected[0]));
  }
  EXPECT_EQ(of_parameters.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(of_parameters[i].defined(), expected[i + 1].defined()) << i;
    if (of_parameters[i].defined()) {
      EXPECT_TRUE(torch::equal(of_parameters[i], expected[i + 1])) << i;
    }
    EXPECT_FALSE(parameters[i].grad().defined());
  }
  return is_split;
}

TEST(SplitBackwardTest, HalvesOfLayersOneAfterAnotherEqualTheWhole) {
  torch::nn::Linear first(4, 8);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  torch::nn::Linear second(8, 3);
  first->to(torch::kDouble);
  norm->to(torch::kDouble);
  second->to(torch::kDouble);
  Tensors parameters = first->parameters();
  for (const auto& more : {norm->parameters(), second->parameters()})
    parameters.insert(parameters.end(), more.begin(), more.end());
  EXPECT_TRUE(expect_halves([&](const torch::Tensor& x) { return second(torch::gelu(norm(first(x)))); },
                            drawn({5, 7, 4}), parameters));
}

TEST(SplitBackwardTest, ResidualsAndUnusedParametersEqualTheWhole) {
  const Tensors parameters{drawn({4, 4}), drawn({4}), drawn({2, 2})};
  const auto frozen = drawn({4}, /*requires_grad=*/false);
  EXPECT_TRUE(expect_halves(
      [&](const torch::Tensor& x) {
        return x + torch::tanh(torch::linear(x, parameters[0], parameters[1])) * frozen;
      },
      drawn({6, 4}), parameters));
}

TEST(SplitBackwardTest, AParameterOfSeveralPlacesIsNotSplit) {
  const Tensors parameters{drawn({4, 4})};
  EXPECT_FALSE(expect_halves(
      [&](const torch::Tensor& x) {
        return torch::linear(torch::tanh(torch::linear(x, parameters[0])), parameters[0]);
      },
      drawn({6, 4}), parameters));
}

TEST(SplitBackwardTest, AResultThatDoesNotDependOnTheInputIsNotSplit) {
  const Tensors parameters{drawn({4})};
  EXPECT_FALSE(expect_halves([&](const torch::Tensor& x) { return parameters[0].expand(x.sizes()) * 2; },
                             drawn({6, 4}), parameters));
}

TEST(SplitBackwardTest, RecomputationIsNotSplit) {
  const Tensors parameters{drawn({4, 4})};
  EXPECT_FALSE(expect_halves(
      [&](const torch::Tensor& x) {
        return recompute(
            [&](const torch::Tensor& in) { return torch::tanh(torch::linear(in, parameters[0])); }, x);
      },
      drawn({6, 4}), parameters));
}

// The second half may come much later, and has nothing to compute.
TEST(SplitBackwardTest, OfAFunctionThatIsNotSplitNothingHoldsTheInputUntilTheSecondHalf) {
  const Tensors parameters{drawn({4, 4})};
  const auto x = drawn({6, 4});
  const auto uses = x.use_count();
  SplitBackward backward(
      recompute([&](const torch::Tensor& in) { return torch::linear(in, parameters[0]); }, x), x, parameters);
  EXPECT_GT(x.use_count(), uses);
  const auto of_input = backward.inputs(torch::ones({6, 4}, torch::kDouble));
  EXPECT_EQ(x.use_count(), uses);
  EXPECT_TRUE(of_input.defined());
  EXPECT_TRUE(backward.weights()[0].defined());
}

TEST(SplitBackwardTest, WithoutAnInputTheSecondHalfDoesAllOfTheWork) {
  const Tensors parameters{drawn({4, 4})};
  const auto x = drawn({6, 4}, /*requires_grad=*/false);
  const auto result = torch::tanh(torch::linear(x, parameters[0]));
  const auto expected = torch::autograd::grad({result}, {parameters[0]}, {torch::ones_like(result)},
                                              /*retain_graph=*/true);
  SplitBackward backward(result, {}, parameters);
  EXPECT_FALSE(backward.inputs(torch::ones_like(result)).defined());
  EXPECT_TRUE(torch::equal(backward.weights()[0], expected[0]));
}

/// Counts how often it is run backward.
struct CountedProduct : torch::autograd::Function<CountedProduct> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, int64_t) {
    context->save_for_backward({x});
    return x * 2;
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) {
    ++calls;
    return {gradients[0] * 2, torch::Tensor()};
  }
  static inline int calls = 0;
};

TEST(SplitBackwardTest, NothingBetweenLayersIsComputedTwice) {
  const Tensors parameters{drawn({4, 4}), drawn({4, 4})};
  const auto x = drawn({6, 4});
  CountedProduct::calls = 0;
  const auto between = CountedProduct::apply(torch::linear(x, parameters[0]), 0);
  SplitBackward backward(torch::linear(between, parameters[1]), x, parameters);
  EXPECT_TRUE(backward.is_split());
  backward.inputs(torch::ones({6, 4}, torch::kDouble));
  backward.weights();
  EXPECT_EQ(CountedProduct::calls, 1);
}

}  // namespace
}  // namespace lockstep
