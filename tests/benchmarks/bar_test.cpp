#include "lockstep/benchmarks/bar.h"

#include <gtest/gtest.h>

namespace lockstep::benchmarks {
namespace {

// The project's own rule: the interval reaches the bar, and the median is within 0.02 of it.

TEST(Bar, IsMetWhereTheIntervalReachesItAndTheMedianIsNear) {
  const Bar bar{Bar::Side::kAtLeast, 0.98};
  EXPECT_TRUE(bar.is_met({.median = 0.97, .lower = 0.95, .upper = 0.99}));
  EXPECT_TRUE(bar.is_met({.median = 1.20, .lower = 1.10, .upper = 1.30}));
  EXPECT_FALSE(bar.is_met({.median = 0.97, .lower = 0.95, .upper = 0.975}));
  EXPECT_FALSE(bar.is_met({.median = 0.95, .lower = 0.80, .upper = 1.10}));
}

TEST(Bar, HoldsTheOtherWayRoundForAnUpperLimit) {
  const Bar bar{Bar::Side::kAtMost, 1.05};
  EXPECT_TRUE(bar.is_met({.median = 1.06, .lower = 1.04, .upper = 1.08}));
  EXPECT_TRUE(bar.is_met({.median = 0.90, .lower = 0.80, .upper = 0.95}));
  EXPECT_FALSE(bar.is_met({.median = 1.06, .lower = 1.055, .upper = 1.08}));
  EXPECT_FALSE(bar.is_met({.median = 1.10, .lower = 1.00, .upper = 1.20}));
}

TEST(Bar, SaysItsSide) {
  EXPECT_EQ((Bar{Bar::Side::kAtLeast, 0.98}.str()), ">= 0.98");
  EXPECT_EQ((Bar{Bar::Side::kAtMost, 1.05}.str()), "<= 1.05");
}

}  // namespace
}  // namespace lockstep::benchmarks
