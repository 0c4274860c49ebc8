#include "lockstep/training/metrics/loss_functions.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

TEST(LossFunctions, GiveALossForEachExample) {
  const auto outputs = torch::tensor({{1.0, 2.0}, {0.0, -2.0}}),
             targets = torch::tensor({{0.0, 2.0}, {1.0, 1.0}});
  EXPECT_TRUE(mean_squared_error(outputs, targets).allclose(torch::tensor({0.5, 5.0})));
  const auto yes = sigmoid_cross_entropy(outputs, torch::tensor({{0.0, 1.0}, {1.0, 1.0}}));
  EXPECT_NEAR(yes[0].item<double>(), (std::log(1 + std::exp(1.0)) + std::log(1 + std::exp(-2.0))) / 2, 1e-6);
  EXPECT_NEAR(cross_entropy(outputs, torch::tensor({1, 0}))[0].item<double>(), std::log(1 + std::exp(-1.0)),
              1e-6);
}

TEST(LossFunctions, DoNotRoundTargetsToTheOutputsShortType) {
  const auto outputs = torch::tensor({1234.0}).to(torch::kBFloat16);  // 1232
  EXPECT_EQ(mean_squared_error(outputs, torch::tensor({1234.5F})).item<double>(), 6.25);
  EXPECT_TRUE(
      mean_squared_error(torch::zeros({1}, torch::kHalf), torch::tensor({1e5F})).isfinite().item<bool>());
}

TEST(LossFunctions, RefuseTargetsOfAnotherShape) {
  EXPECT_THROW(mean_squared_error(torch::zeros({3, 1}), torch::zeros({3})), InvalidArgument);
  EXPECT_THROW(sigmoid_cross_entropy(torch::zeros({3}), torch::Tensor()), InvalidArgument);
  EXPECT_THROW(cross_entropy(torch::zeros({3, 2}), torch::Tensor()), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
