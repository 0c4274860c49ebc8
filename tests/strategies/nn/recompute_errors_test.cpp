// Errors that recompute() reports in backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/strategies/nn/recompute_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

/// The message of backward through a function that is called with 0 and then with 1.
template <typename Function>
std::string message_of_backward(const Function& function) {
  int calls = 0;
  const auto x = torch::ones({2, 3}).requires_grad_();
  const auto results = recompute([&](const torch::Tensor& in) { return function(in, calls++); }, x);
  return message_of<InvalidArgument>([&] { results[0].sum().backward(); });
}

TEST(RecomputeErrorsTest, NamesShapesThatDiffer) {
  EXPECT_EQ(
      message_of_backward([](const torch::Tensor& x, int call) { return Tensors{x.narrow(1, 0, 2 + call)}; }),
      "[recompute] expected Float [2, 2] on cpu with a gradient as tensor 0 of the result, as from the "
      "first forward, but the second returned Float [2, 3] on cpu with a gradient: the function must "
      "compute the same both times");
}

TEST(RecomputeErrorsTest, NamesOtherDtypesMissingGradientsAndUndefinedTensors) {
  EXPECT_THAT(message_of_backward([](const torch::Tensor& x, int call) {
                return Tensors{call == 0 ? x * 2 : (x * 2).to(torch::kDouble)};
              }),
              HasSubstr("but the second returned Double [2, 3]"));
  EXPECT_THAT(message_of_backward(
                  [](const torch::Tensor& x, int call) { return Tensors{call == 0 ? x * 2 : x.detach()}; }),
              HasSubstr("but the second returned Float [2, 3] on cpu without a gradient"));
  EXPECT_THAT(message_of_backward([](const torch::Tensor& x, int call) {
                return Tensors{x * 2, call == 0 ? x : torch::Tensor()};
              }),
              HasSubstr("as tensor 1 of the result, as from the first forward, but the second returned an "
                        "undefined tensor"));
}

TEST(RecomputeErrorsTest, NamesNumbersOfTensorsThatDiffer) {
  EXPECT_THAT(message_of_backward([](const torch::Tensor& x, int call) {
                return Tensors(static_cast<size_t>(2 + call), x * 2);
              }),
              HasSubstr("expected 2 tensors, as from the first forward, but the second returned 3"));
}

TEST(RecomputeErrorsTest, RefusesOtherOrFewerParametersThanTheFirstForwardUsed) {
  const auto a = torch::ones({3}).requires_grad_();
  const auto b = torch::ones({3}).requires_grad_();
  EXPECT_THAT(
      message_of_backward([&](const torch::Tensor& x, int call) { return Tensors{x * (call == 0 ? a : b)}; }),
      HasSubstr("the second forward used others than the first among parameters"));
  EXPECT_THAT(message_of_backward(
                  [&](const torch::Tensor& x, int call) { return Tensors{call == 0 ? x * a : x * 1}; }),
              HasSubstr("the second forward used fewer than the first among parameters"));
}

TEST(RecomputeErrorsTest, RefusesToDifferentiateGradients) {
  const auto x = torch::ones({3}).requires_grad_();
  const auto y = recompute([](const torch::Tensor& in) { return in * in; }, x).sum();
  const auto differentiate = [&] {
    torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  EXPECT_THAT(message_of<InvalidArgument>(differentiate), HasSubstr("create_graph is not supported"));
  y.backward();
  EXPECT_TRUE(x.grad().equal(torch::full({3}, 2.0)));
}

TEST(RecomputeErrorsTest, RefusesASecondBackwardIfTheGraphWasNotRetained) {
  const auto x = torch::ones({3}).requires_grad_();
  // sum() keeps nothing, so that the engine's own check does not come first.
  const auto y = recompute([](const torch::Tensor& in) { return in * in; }, x).sum();
  y.backward();
  EXPECT_THAT(message_of<InvalidArgument>([&] { y.backward(); }), HasSubstr("pass retain_graph"));
}

TEST(RecomputeErrorsTest, RefusesArgumentsChangedInPlace) {
  const auto x = torch::ones({3});
  const auto scale = torch::ones({3}).requires_grad_();
  const auto scaled = [](const torch::Tensor& factor, const torch::Tensor& in) { return in * factor; };
  const auto y = recompute(scaled, scale, x).sum();
  x.add_(1);
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { y.backward(); }),
      HasSubstr("expected tensor 1 of the arguments as the first forward got it, but it was changed"));
  const auto changing = [](const torch::Tensor& factor, torch::Tensor in) { return in.add_(1) * factor; };
  const auto z = recompute(changing, scale, x).sum();
  EXPECT_THAT(message_of<InvalidArgument>([&] { z.backward(); }), HasSubstr("expected tensor 1"));
}

TEST(RecomputeErrorsTest, RefusesParametersChangedSinceTheFirstForward) {
  ResidualBlock block(3);
  const auto y = recompute(block, torch::ones({2, 3})).sum();
  {
    const torch::NoGradGuard no_grad;
    block->first->weight.sub_(1);
  }
  EXPECT_THAT(message_of<InvalidArgument>([&] { y.backward(); }), HasSubstr("as by an optimizer's step"));
}

TEST(RecomputeErrorsTest, AnErrorOfTheSecondForwardReachesTheCallerAndRestoresItsSettings) {
  auto x = torch::ones({3}).requires_grad_();
  int calls = 0;
  const auto failing = [&](const torch::Tensor& in) {
    const auto dropped = torch::dropout(in, 0.5, /*train=*/true);
    if (++calls == 2) throw std::domain_error("no more");
    return dropped;
  };
  const auto y = recompute(failing, x).sum();
  torch::manual_seed(9);
  EXPECT_EQ(message_of<std::domain_error>([&] { y.backward(); }), "no more");
  const auto after = torch::rand({4});
  torch::manual_seed(9);
  EXPECT_TRUE(torch::rand({4}).equal(after));
}

}  // namespace
}  // namespace lockstep
