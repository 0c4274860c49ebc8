#include "lockstep/benchmarks/scaling/line_fit.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

TEST(LineFit, FindsTheLineThatThePointsLieOn) {
  const Line line = fit_line({{1, 5}, {4, 11}, {10, 23}});
  EXPECT_NEAR(line.intercept, 3, 1e-9);
  EXPECT_NEAR(line.slope, 2, 1e-9);
}

// The oracle is a search: no line near the fitted one has a smaller sum of squared relative errors.
TEST(LineFit, HasTheLeastSquaresOfRelativeErrors) {
  const std::vector<LinePoint> points{{0, 1}, {10, 2}, {1000, 90}, {4000, 420}};
  const auto loss = [&](const Line& line) {
    double sum = 0;
    for (const auto& [x, y] : points) sum += (line.at(x) / y - 1) * (line.at(x) / y - 1);
    return sum;
  };
  const Line best = fit_line(points);
  for (const double intercept : {0.99, 1.0, 1.01}) {
    for (const double slope : {0.99, 1.0, 1.01})
      EXPECT_GE(loss({best.intercept * intercept, best.slope * slope}), loss(best));
  }
}

TEST(LineFit, HasNoNegativeTimes) {
  const Line steep = fit_line({{1, 1}, {2, 3}, {3, 5}});  // 2 x - 1
  EXPECT_EQ(steep.intercept, 0);
  EXPECT_GT(steep.slope, 0);
  const Line falling = fit_line({{1, 3}, {2, 2}});
  EXPECT_GT(falling.intercept, 0);
  EXPECT_EQ(falling.slope, 0);
}

TEST(LineFit, OfOnePointGoesThroughTheOrigin) {
  EXPECT_EQ(fit_line({{4, 8}}).at(2), 4);
  EXPECT_EQ(fit_line({{0, 8}}).at(2), 8);
}

TEST(LineFit, RefusesNoPointsAndTimesThatAreNotPositive) {
  EXPECT_THROW(fit_line({}), std::invalid_argument);
  EXPECT_THROW(fit_line({{1, 0}}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::benchmarks
