#include "lockstep/training/metrics/finite_steps.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(FiniteSteps, CountsEveryStepWhileLossesAreFinite) {
  FiniteSteps steps;
  EXPECT_EQ(steps.count(), 0);
  for (int step = 0; step < 3; ++step) steps.update(torch::tensor({1.0, 2.0}));
  EXPECT_EQ(steps.count(), 3);
  EXPECT_EQ(steps.steps(), 3);
}

TEST(FiniteSteps, StopsAtTheFirstLossThatIsNotAndStaysThere) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    FiniteSteps steps;
    steps.update(torch::tensor({1.0, 2.0}));
    steps.update(torch::tensor({1.0, bad}));
    steps.update(torch::tensor({1.0, 2.0}));
    EXPECT_EQ(steps.count(), 1) << bad;
    EXPECT_EQ(steps.steps(), 3);
  }
}

TEST(FiniteSteps, TakesAnEmptyShardForFinite) {
  FiniteSteps steps;
  steps.update(torch::empty({0}));
  EXPECT_EQ(steps.count(), 1);
}

TEST(FiniteSteps, BeginsAnewAfterReset) {
  FiniteSteps steps;
  steps.update(torch::tensor({kNan}));
  steps.reset();
  steps.update(torch::tensor({1.0}));
  EXPECT_EQ(steps.count(), 1);
  EXPECT_EQ(steps.steps(), 1);
}

}  // namespace
}  // namespace lockstep
