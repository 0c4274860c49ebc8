// The use of a unit that a replica expects next: the one that followed the same uses before.
#include "lockstep/strategies/sharding/internal/unit_order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lockstep {
namespace {

using Kind = UnitUse::Kind;
using Uses = std::vector<UnitUse>;

Uses forwards(const std::vector<int64_t>& units) {
  Uses uses;
  for (const int64_t unit : units) uses.push_back({unit, Kind::kForward});
  return uses;
}

/// Forwards of the units and backwards in the other order.
Uses step_of(const std::vector<int64_t>& units) {
  Uses uses = forwards(units);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) uses.push_back({*unit, Kind::kBackward});
  return uses;
}

/// Makes a run's uses. Returns how many of them, but the first, were expected, and how many others were.
struct Expected {
  int right = 0;
  int wrong = 0;
};
Expected run(UnitOrder& order, const Uses& uses) {
  order.begin_run();
  Expected expected;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (const auto next = order.next(); next && i > 0) ++(*next == uses[i] ? expected.right : expected.wrong);
    order.move_on(uses[i]);
  }
  return expected;
}

TEST(UnitOrderTest, ExpectsNothingInTheFirstStepAndAllOfTheSecond) {
  UnitOrder order;
  const auto step = step_of({0, 1, 2});
  EXPECT_EQ(run(order, step).right, 0);
  EXPECT_EQ(order.next(), std::nullopt);
  EXPECT_EQ(run(order, step).right, 5);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(UnitOrderTest, UnitsMayComeSeveralTimes) {
  UnitOrder order;
  const auto step = step_of({0, 1, 1, 1, 0, 2, 0});
  run(order, step);
  EXPECT_EQ(run(order, step).right, 13);
}

TEST(UnitOrderTest, EvaluationAndTrainingDisturbEachOtherOnlyWhereTheyPart) {
  UnitOrder order;
  const auto training = step_of({0, 1, 2, 3});
  const auto evaluation = forwards({0, 1, 2, 3, 0, 1, 2, 3});
  run(order, training);
  run(order, evaluation);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(run(order, training).right, 6);
    EXPECT_GE(run(order, evaluation).right, 6);
  }
}

TEST(UnitOrderTest, AForwardAfterABackwardBeginsAPass) {
  UnitOrder order;
  const auto step = step_of({0, 1, 2});
  Uses steps;
  for (int i = 0; i < 3; ++i) steps.insert(steps.end(), step.begin(), step.end());
  // Parameters may change between steps, so that the first unit of a step is never expected.
  EXPECT_EQ(run(order, steps).right, 2 * 5);
}

TEST(UnitOrderTest, RecomputationsBelongToTheirBackward) {
  UnitOrder order;
  Uses step = forwards({0, 1});
  for (const int64_t unit : {1, 0}) {
    step.push_back({unit, Kind::kRecomputation});
    step.push_back({unit, Kind::kBackward});
  }
  run(order, step);
  EXPECT_EQ(run(order, step).right, 5);
}

TEST(UnitOrderTest, ANewOrderIsExpectedOnceItHasRepeated) {
  UnitOrder order;
  for (int i = 0; i < 3; ++i) run(order, forwards({0, 1, 2, 3}));
  const auto first = run(order, forwards({0, 2, 1, 3}));
  EXPECT_EQ(first.right, 0);
  EXPECT_EQ(first.wrong, 1);
  const auto second = run(order, forwards({0, 2, 1, 3}));
  EXPECT_EQ(second.right, 2);
  EXPECT_EQ(second.wrong, 0);
  EXPECT_EQ(run(order, forwards({0, 2, 1, 3})).right, 3);
}

TEST(UnitOrderTest, ExpectsNothingAfterAnExpectationInVainUntilTheUseComesAgain) {
  UnitOrder order;
  run(order, forwards({0, 1}));
  run(order, forwards({0}));
  EXPECT_TRUE(order.next());
  order.distrust();
  EXPECT_FALSE(order.next());
  run(order, forwards({0, 1}));
  EXPECT_EQ(run(order, forwards({0, 1})).right, 1);
}

TEST(UnitOrderTest, OrdersThatNeverRepeatNeedNoMoreMemory) {
  UnitOrder order;
  std::mt19937 random(5);
  std::uniform_int_distribution<int64_t> unit(0, 99);
  size_t most = 0;
  for (size_t i = 0; i < 3 * UnitOrder::kMostPlaces; ++i) {
    order.move_on({unit(random), Kind::kForward});
    most = std::max(most, order.num_places());
  }
  EXPECT_EQ(most, UnitOrder::kMostPlaces);
  const auto step = step_of({0, 1, 2});
  run(order, step);
  EXPECT_EQ(run(order, step).right, 5);
}

TEST(UnitOrderTest, CallsThatAreTheSameGetTheSameAnswers) {
  UnitOrder one;
  UnitOrder other;
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {
    const UnitUse use{std::uniform_int_distribution<int64_t>(0, 2)(random),
                      static_cast<Kind>(std::uniform_int_distribution(0, 2)(random))};
    one.move_on(use);
    other.move_on(use);
    ASSERT_EQ(one.next(), other.next());
  }
  one.forget();
  EXPECT_EQ(one.num_places(), 1U);
}

}  // namespace
}  // namespace lockstep
