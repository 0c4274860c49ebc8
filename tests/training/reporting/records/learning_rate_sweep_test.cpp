#include "lockstep/training/reporting/records/learning_rate_sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

/// Losses along half a cosine over 31 rates from 1e-5 to 1e1, which falls fastest in the middle, at 1e-2.
LearningRateSweep half_cosine() {
  LearningRateSweep sweep;
  for (int i = 0; i <= 30; ++i) {
    sweep.learning_rates.push_back(std::pow(10, -5 + 0.2 * i));
    sweep.smoothed_losses.push_back(1 + std::cos(M_PI * i / 30));
  }
  return sweep;
}

TEST(SteepestLearningRate, IsWhereTheLossFallsFastest) {
  EXPECT_NEAR(*steepest_learning_rate(half_cosine()), 1e-2, 1e-12);
}

TEST(SteepestLearningRate, IsNotAmongTheStepsLeftOut) {
  auto sweep = half_cosine();
  sweep.smoothed_losses[1] = -50;   // a steep fall before it
  sweep.smoothed_losses[28] = -50;  // and one at the end
  EXPECT_NEAR(*steepest_learning_rate(sweep), 1e-2, 1e-12);
  EXPECT_NE(*steepest_learning_rate(sweep, {.skip_begin = 0, .skip_end = 0}), 1e-2);
}

TEST(SteepestLearningRate, LeavesOutLossesThatAreNotFinite) {
  auto sweep = half_cosine();
  sweep.smoothed_losses[20] = std::numeric_limits<double>::quiet_NaN();
  sweep.smoothed_losses[22] = -std::numeric_limits<double>::infinity();
  EXPECT_NEAR(*steepest_learning_rate(sweep), 1e-2, 1e-12);
}

TEST(SteepestLearningRate, DoesNotExistIfTheLossNeverFalls) {
  auto sweep = half_cosine();
  for (auto& loss : sweep.smoothed_losses) loss = -loss;
  EXPECT_EQ(steepest_learning_rate(sweep), std::nullopt);
  EXPECT_EQ(steepest_learning_rate(half_cosine(), {.skip_begin = 15, .skip_end = 14}), std::nullopt);
  EXPECT_EQ(steepest_learning_rate({}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
