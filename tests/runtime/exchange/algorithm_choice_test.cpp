#include "lockstep/runtime/exchange/algorithm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/tests/runtime/exchange/plan_check.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                                     CollectiveKind::kAllToAll};
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// Simulates the plans of all ranks.
double simulated(CollectiveKind kind, PlanAlgorithm algorithm, int size, int64_t bytes,
                 const LinkCosts& costs) {
  const auto plans = plans_of(kind, algorithm, size);
  const bool is_all_to_all = kind == CollectiveKind::kAllToAll;
  auto blocks = even_blocks(bytes, is_all_to_all ? size : plans[0].num_blocks);
  if (is_all_to_all) {
    const auto received = blocks;
    blocks.insert(blocks.end(), received.begin(), received.end());
  }
  return simulated_seconds(plans, blocks, costs);
}

// The simulation of all ranks is the oracle. The choice looks at rank 0 only, which is not exact if the
// number of ranks is no power of two.
TEST(AlgorithmChoice, IsTheFastestInASimulationOfAllRanks) {
  for (const auto& costs : {kSharedMemoryCosts, kNetworkCosts}) {
    for (const auto kind : kKinds) {
      for (const int size : {2, 3, 4, 6, 8, 16, 33, 64}) {
        const auto ranges = choose_algorithms(kind, size, costs);
        for (const int64_t bytes : {0, 64, 4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
          double least = std::numeric_limits<double>::infinity();
          for (const auto algorithm : algorithms_for(kind)) {
            if (has_fixed_order(kind, algorithm) && has_few_messages(kind, algorithm, size))
              least = std::min(least, simulated(kind, algorithm, size, bytes, costs));
          }
          const auto chosen = algorithm_for(ranges, bytes);
          EXPECT_TRUE(has_fixed_order(kind, chosen));
          const double rounds = std::ceil(std::log2(size));
          size_t sent = 0;
          for (const auto& round : make_plan(kind, chosen, 0, size).rounds) sent += round.sends.size();
          if (kind != CollectiveKind::kAllToAll) {
            EXPECT_LE(sent, 2 * rounds + 2);
          }
          EXPECT_LE(simulated(kind, chosen, size, bytes, costs), 1.15 * least)
              << to_string(kind) << " of " << bytes << " bytes over " << size << " ranks by "
              << to_string(chosen);
        }
      }
    }
  }
}

// Hockney's model, by hand: with p rounds, doubling takes p (L + b B), and halving 2 p L + 2 (n - 1) / n b B.
TEST(AlgorithmChoice, SwitchesWhereTheFormulasCross) {
  constexpr LinkCosts kCosts{.seconds_per_message = 25e-6, .seconds_per_byte = 8e-10, .overhead_seconds = 1};
  const auto ranges = choose_algorithms(CollectiveKind::kAllReduce, 16, kCosts);
  ASSERT_EQ(ranges.size(), 2);
  EXPECT_EQ(ranges[0].algorithm, PlanAlgorithm::kRecursiveDoubling);
  EXPECT_EQ(ranges[1], (AlgorithmRange{PlanAlgorithm::kHalving, kUnlimited}));
  const double crossing = 4 * (25e-6 + 1) / ((4 - 2.0 * 15 / 16) * 8e-10);
  EXPECT_NEAR(static_cast<double>(ranges[0].most_bytes), crossing, 1e-6 * crossing);
  EXPECT_EQ(algorithm_for(ranges, ranges[0].most_bytes), PlanAlgorithm::kRecursiveDoubling);
  EXPECT_EQ(algorithm_for(ranges, ranges[0].most_bytes + 1), PlanAlgorithm::kHalving);
}

// n - 1 messages at once only pay if messages hardly occupy a rank, and need a link to each.
TEST(AlgorithmChoice, SendsToAllAtOnceOnlyIfMessagesAreCheap) {
  LinkCosts costs{.seconds_per_message = 1e-3, .seconds_per_byte = 1e-9, .overhead_seconds = 0};
  constexpr auto kKind = CollectiveKind::kAllReduce;
  EXPECT_EQ(algorithm_for(choose_algorithms(kKind, 4, costs), 1 << 20), PlanAlgorithm::kDirect);
  EXPECT_NE(algorithm_for(choose_algorithms(kKind, 64, costs), 1 << 20), PlanAlgorithm::kDirect);
  costs.overhead_seconds = 1e-3;
  EXPECT_NE(algorithm_for(choose_algorithms(kKind, 4, costs), 1 << 20), PlanAlgorithm::kDirect);
}

TEST(AlgorithmChoice, OfOneRankIsAny) {
  for (const auto kind : kKinds) {
    const auto ranges = choose_algorithms(kind, 1, kNetworkCosts);
    ASSERT_EQ(ranges.size(), 1);
    EXPECT_EQ(ranges[0].most_bytes, kUnlimited);
  }
}

// Recomputed from the time of an exchange: 80 % of the speed of large messages, and no smaller power of two.
TEST(BucketChoice, IsTheSmallestSizeThatIsFast) {
  for (const ExchangePolicy& policy :
       {ExchangePolicy{}, ExchangePolicy{.transport = "shared memory", .costs = kSharedMemoryCosts}}) {
    for (const int size : {2, 4, 64, 1024}) {
      const auto ranges = choose_algorithms(CollectiveKind::kAllReduce, size, policy.costs);
      const auto speed = [&](int64_t bytes) {
        return static_cast<double>(bytes) / algorithm_seconds(CollectiveKind::kAllReduce,
                                                              algorithm_for(ranges, bytes), size, bytes,
                                                              policy.costs);
      };
      const int64_t chosen = choose_bucket_bytes(size, policy);
      const double fast = 0.8 * speed(int64_t{1} << 40);
      EXPECT_GE(speed(chosen), fast);
      if (chosen > 1 << 20) {
        EXPECT_LT(speed(chosen / 2), fast);
      }
    }
  }
}

TEST(BucketChoice, GrowsWithTheNumberOfRanksAndTheLatency) {
  int64_t before = 0;
  for (int size = 2; size <= 4096; size *= 2) {
    const int64_t chosen = choose_bucket_bytes(size, {});
    EXPECT_GE(chosen, before);
    before = chosen;
  }
  ExchangePolicy far;
  far.costs.seconds_per_message = 1;
  EXPECT_EQ(choose_bucket_bytes(64, far), 16 << 20);
  EXPECT_EQ(choose_bucket_bytes(64, {.costs = {.seconds_per_byte = 1e-9}}), 1 << 20);
}

TEST(BucketChoice, KnowsTheForcedAlgorithm) {
  const ExchangePolicy ring{.all_reduce_algorithm = PlanAlgorithm::kRing};
  EXPECT_GT(choose_bucket_bytes(64, ring), choose_bucket_bytes(64, {}));
}

TEST(DescribeExchanges, TellsAlgorithmsSizesAndCosts) {
  ExchangePolicy policy{
      .transport = "pigeons",
      .costs = {.seconds_per_message = 25e-6, .seconds_per_byte = 8e-10, .overhead_seconds = 5e-6}};
  const auto text = describe(policy, 64);
  EXPECT_THAT(text, StartsWith("over pigeons, recursive_doubling up to "));
  EXPECT_THAT(text, HasSubstr(" KiB, then halving; 25 us and 5 us a message, 0.8 ns a byte"));
  policy.all_reduce_algorithm = PlanAlgorithm::kRing;
  EXPECT_THAT(describe(policy, 64), StartsWith("over pigeons, ring; 25 us"));
}

}  // namespace
}  // namespace lockstep
