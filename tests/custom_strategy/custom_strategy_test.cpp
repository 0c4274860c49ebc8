// A user's own strategy, as in docs/custom_strategy.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/lockstep.h"

// Defined in train.cpp.
std::vector<double> train(const std::string& strategy_name, const torch::Tensor& x, const torch::Tensor& y);

namespace {

/// One step of gradient descent on the mean of (w x - 3 x)^2 over 1, 2, 3, 4: its derivative is 15 (w - 3).
double after_one_step(double w) {
  return w - 0.01 * 15 * (w - 3);
}

TEST(CustomStrategy, IsMadeByItsName) {
  EXPECT_THAT(lockstep::strategy_names(), testing::Contains("finite_steps"));
  const auto made = lockstep::make_strategy("finite_steps", {.devices = {"cpu:3", "cpu:1", "cpu:0"}});
  EXPECT_EQ(made.reason, "finite_steps: asked for by name");
  EXPECT_EQ(made.strategy->name(), "FiniteStepsStrategy");
  EXPECT_EQ(made.strategy->num_replicas_in_sync(), 3);
}

TEST(CustomStrategy, RunsTheProgramThatOtherStrategiesRunAndLeavesOutStepsThatAreNotFinite) {
  auto x = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}).repeat({3}).unsqueeze(1);
  auto y = 3 * x;
  const double first = after_one_step(0), second = after_one_step(first), third = after_one_step(second);
  for (const std::string name : {"finite_steps", "default"}) {
    const auto weights = train(name, x, y);
    ASSERT_EQ(weights.size(), 3U);
    EXPECT_NEAR(weights[0], first, 1e-5) << name;
    EXPECT_NEAR(weights[1], second, 1e-5) << name;
    EXPECT_NEAR(weights[2], third, 1e-5) << name;
  }
  // The last example of the second batch is on replica 1: replica 0 must skip the step as well.
  y[7][0] = std::numeric_limits<float>::quiet_NaN();
  const auto weights = train("finite_steps", x, y);
  EXPECT_NEAR(weights[0], first, 1e-5);
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_NEAR(weights[2], second, 1e-5);
  EXPECT_TRUE(std::isnan(train("default", x, y)[2])) << "without the strategy the training is lost";
}

}  // namespace
