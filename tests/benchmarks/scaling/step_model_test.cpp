#include "lockstep/benchmarks/scaling/step_model.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

/// Forward 2 s, backward 6 s with buckets ready after 1, 3 and 6 s, optimizer 1 s.
ComputeTimes three_buckets() {
  return {.forward_seconds = 2,
          .backward_seconds = 6,
          .optimizer_seconds = 1,
          .buckets = {{100, 1}, {100, 3}, {100, 6}}};
}

TEST(StepModel, WithoutExchangesIsTheCompute) {
  const auto compute = three_buckets();
  EXPECT_EQ(step_seconds(compute, {{}, {}, {}}, Overlap::kBackward), 9);
  EXPECT_EQ(step_seconds(compute, {{}, {}, {}}, Overlap::kNone), 9);
}

// Exchanges of 3 s begin at 1, 4 and 7 s of backward: the last one ends at 10.
TEST(StepModel, ExchangesWaitForTheirBucketAndForEachOther) {
  const auto compute = three_buckets();
  EXPECT_DOUBLE_EQ(step_seconds(compute, {{3}, {3}, {3}}, Overlap::kBackward), 2 + 10 + 1);
  EXPECT_DOUBLE_EQ(step_seconds(compute, {{3}, {3}, {3}}, Overlap::kNone), 2 + 6 + 9 + 1);
}

// Exchanges of 1 s run from 1 to 2, from 3 to 4 and, after backward has ended, from 6 to 7.
TEST(StepModel, OnlyTheLastExchangeIsSeenWhereTheLinkIsFast) {
  EXPECT_DOUBLE_EQ(step_seconds(three_buckets(), {{1}, {1}, {1}}, Overlap::kBackward), 2 + 7 + 1);
}

TEST(StepModel, WhatBelongsToNoBucketLeavesAtTheEndOfBackward) {
  ComputeTimes compute = three_buckets();
  compute.buckets.resize(1);
  EXPECT_DOUBLE_EQ(step_seconds(compute, {{1}, {0.5}}, Overlap::kBackward), 2 + 6.5 + 1);
}

// The first exchange runs from 1 to 3 s and stops half of backward, so the second bucket is ready 1 s late,
// at 4 s; the next exchange, from 4 to 6 s, delays the end of backward by another second, to 8 s.
TEST(StepModel, ExchangesDelayTheBackwardThatTheyTakeTheProcessorFrom) {
  const std::vector<ExchangeTimes> exchanges{{2, 0.5}, {2, 0.5}, {0, 0}};
  EXPECT_DOUBLE_EQ(step_seconds(three_buckets(), exchanges, Overlap::kBackward), 2 + 8 + 1);
}

TEST(StepModel, OverlapGainsNothingWhereExchangesTakeTheWholeProcessor) {
  const auto compute = three_buckets();
  const std::vector<ExchangeTimes> exchanges{{1, 1}, {2, 1}, {3, 1}};
  EXPECT_DOUBLE_EQ(step_seconds(compute, exchanges, Overlap::kBackward),
                   step_seconds(compute, exchanges, Overlap::kNone));
}

TEST(StepModel, OverlapIsNeverSlower) {
  const auto compute = three_buckets();
  for (const double seconds : {0.0, 0.1, 1.0, 2.5, 10.0}) {
    for (const double share : {0.0, 0.3, 0.9, 1.0}) {
      const std::vector<ExchangeTimes> exchanges(4, {seconds, share});
      EXPECT_LE(step_seconds(compute, exchanges, Overlap::kBackward),
                step_seconds(compute, exchanges, Overlap::kNone) + 1e-12)
          << seconds << ' ' << share;
      EXPECT_GE(step_seconds(compute, exchanges, Overlap::kBackward), compute.seconds());
    }
  }
}

TEST(StepModel, TheSlowestReplicaIsWaitedForOnce) {
  ComputeTimes compute = three_buckets();
  compute.waiting_seconds = 0.25;
  EXPECT_DOUBLE_EQ(step_seconds(compute, {{1}, {1}, {1}}, Overlap::kBackward), 2 + 7 + 0.25 + 1);
}

TEST(StepModel, RefusesABucketWithoutExchange) {
  EXPECT_THROW(step_seconds(three_buckets(), {{1}, {1}}, Overlap::kNone), std::invalid_argument);
}

// Gradients are taken as they come: a bucket closes with the one that fills it, and is ready with it.
TEST(StepModel, MakesTheBucketsOfTheLibrary) {
  const ComputeTimes compute{.backward_seconds = 6, .gradients = {{8, 1}, {4, 2}, {4, 3}, {16, 4}, {4, 6}}};
  const auto buckets = compute.in_buckets({.first_bucket_bytes = 12, .bucket_bytes = 18}).buckets;
  ASSERT_EQ(buckets.size(), 3);
  const std::vector<std::pair<double, double>> expected{{12, 2}, {20, 4}, {4, 6}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(buckets[i].bytes, expected[i].first);
    EXPECT_EQ(buckets[i].ready_seconds, expected[i].second);
  }
}

// 10 bytes: 2, then 5, then the rest, ready in proportion to the bytes so far.
TEST(EvenBuckets, CloseAtTheirSizes) {
  const auto buckets = even_buckets(10, 2, 5, 20);
  ASSERT_EQ(buckets.size(), 3);
  const std::vector<std::pair<double, double>> expected{{2, 4}, {5, 14}, {3, 20}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_DOUBLE_EQ(buckets[i].bytes, expected[i].first);
    EXPECT_DOUBLE_EQ(buckets[i].ready_seconds, expected[i].second);
  }
}

}  // namespace
}  // namespace lockstep::benchmarks
