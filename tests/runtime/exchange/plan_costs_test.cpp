#include "lockstep/runtime/exchange/plan_costs.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/tests/runtime/exchange/plan_check.h"

namespace lockstep {
namespace {

constexpr int kSizes[] = {2, 3, 4, 7, 8, 16, 32, 64, 100, 1024};
constexpr LinkCosts kLink{.seconds_per_message = 25e-6, .seconds_per_byte = 8e-10};

int ceil_log2(int size) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)));
}

struct Most {
  int num_messages = 0;
  int64_t bytes = 0;
};

Most most_of(CollectiveKind kind, PlanAlgorithm algorithm, int size, int64_t bytes) {
  Most most;
  for (const auto& plan : plans_of(kind, algorithm, size)) {
    const auto costs = costs_of(plan, even_blocks(bytes, plan.num_blocks));
    most.num_messages = std::max(most.num_messages, costs.num_messages);
    most.bytes = std::max({most.bytes, costs.bytes_sent, costs.bytes_received});
  }
  return most;
}

// Both sent and received messages count.
TEST(PlanCosts, MessagesGrowWithTheLogarithmOfTheNumberOfRanks) {
  for (const int size : kSizes) {
    const int limit = 2 * ceil_log2(size) + 2;
    const auto messages = [&](CollectiveKind kind, PlanAlgorithm algorithm) {
      return most_of(kind, algorithm, size, 4096).num_messages;
    };
    EXPECT_LE(messages(CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling), limit) << size;
    EXPECT_LE(messages(CollectiveKind::kReduceScatter, PlanAlgorithm::kHalving), limit) << size;
    EXPECT_LE(messages(CollectiveKind::kAllGather, PlanAlgorithm::kDissemination), limit) << size;
    EXPECT_LE(messages(CollectiveKind::kBroadcast, PlanAlgorithm::kTree), limit) << size;
  }
}

TEST(PlanCosts, BytesOfLongMessagesStayWithinTwiceOrThriceTheirSize) {
  constexpr int64_t kBytes = 1 << 22;
  for (const int size : kSizes) {
    const bool is_power = std::has_single_bit(static_cast<unsigned>(size));
    const int64_t limit = is_power ? 2 * (size - 1) * kBytes / size : 3 * kBytes;
    const auto bytes = [&](CollectiveKind kind, PlanAlgorithm algorithm) {
      return most_of(kind, algorithm, size, kBytes).bytes;
    };
    EXPECT_LE(bytes(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving), limit) << size;
    EXPECT_LE(bytes(CollectiveKind::kReduceScatter, PlanAlgorithm::kHalving), limit) << size;
    EXPECT_LE(bytes(CollectiveKind::kAllGather, PlanAlgorithm::kDissemination), limit) << size;
    EXPECT_LE(bytes(CollectiveKind::kBroadcast, PlanAlgorithm::kScatterGather), limit) << size;
  }
}

TEST(PlanCosts, EvenBlocksHaveWholeElementsAndAllBytes) {
  const auto blocks = even_blocks(40, 4, 4);
  EXPECT_EQ(blocks, (std::vector<int64_t>{8, 12, 8, 12}));
  EXPECT_EQ(even_blocks(4, 3, 4), (std::vector<int64_t>{0, 0, 4}));
}

// Hockney's model: log2 n rounds, each with a message of all bytes.
TEST(PlanCosts, OfRecursiveDoublingAreThoseOfTheFormula) {
  constexpr double kBytes = 1 << 20;
  const auto plans = plans_of(CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling, 16);
  const double expected = 4 * (kLink.seconds_per_message + kBytes * kLink.seconds_per_byte);
  EXPECT_NEAR(simulated_seconds(plans, {1 << 20}, kLink), expected, 1e-9);
  EXPECT_NEAR(estimated_seconds(plans[0], {1 << 20}, kLink), expected, 1e-9);
}

// 2 log2 n rounds, and 2 (n - 1) / n of the bytes.
TEST(PlanCosts, OfHalvingAreThoseOfTheFormula) {
  constexpr int kSize = 16;
  constexpr double kBytes = 1 << 20;
  const auto plans = plans_of(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, kSize);
  const auto blocks = even_blocks(1 << 20, kSize);
  const double expected =
      8 * kLink.seconds_per_message + 2.0 * (kSize - 1) / kSize * kBytes * kLink.seconds_per_byte;
  EXPECT_NEAR(simulated_seconds(plans, blocks, kLink), expected, 1e-9);
  EXPECT_NEAR(estimated_seconds(plans[0], blocks, kLink), expected, 1e-9);
}

// 2 (n - 1) rounds (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009).
TEST(PlanCosts, OfARingAreThoseOfTheFormula) {
  constexpr int kSize = 8;
  constexpr double kBytes = 1 << 20;
  const auto plans = plans_of(CollectiveKind::kAllReduce, PlanAlgorithm::kRing, kSize);
  const double expected =
      2 * (kSize - 1) * (kLink.seconds_per_message + kBytes / kSize * kLink.seconds_per_byte);
  EXPECT_NEAR(simulated_seconds(plans, even_blocks(1 << 20, kSize), kLink), expected, 1e-9);
}

// Each round has a message of the parts of half of the ranks that are left.
TEST(PlanCosts, OfATreeAreThoseOfTheFormula) {
  const auto plans = plans_of(CollectiveKind::kGather, PlanAlgorithm::kTree, 8);
  const auto blocks = even_blocks(8000, 8);
  // The root receives 1, 2 and 4 blocks. The last four have to be collected in two rounds before.
  const double expected = 3 * kLink.seconds_per_message + 7 * 1000 * kLink.seconds_per_byte;
  EXPECT_NEAR(simulated_seconds(plans, blocks, kLink), expected, 1e-9);
}

TEST(PlanCosts, AdditionsTakeTime) {
  const auto plans = plans_of(CollectiveKind::kReduceScatter, PlanAlgorithm::kDirect, 4);
  const LinkCosts only_additions{.step_seconds_per_byte = 1};
  EXPECT_DOUBLE_EQ(simulated_seconds(plans, even_blocks(400, 4), only_additions), 300);
  // By halving, values are added as they arrive: 200 bytes of the first partner, and 100 of the second.
  const auto halving = plans_of(CollectiveKind::kReduceScatter, PlanAlgorithm::kHalving, 4);
  const LinkCosts only_arriving{.add_seconds_per_byte = 1};
  EXPECT_DOUBLE_EQ(simulated_seconds(halving, even_blocks(400, 4), only_arriving), 300);
  EXPECT_DOUBLE_EQ(simulated_seconds(plans, even_blocks(400, 4), only_arriving), 0);
}

// LogP, by hand: the last of n - 1 messages leaves once the others have.
TEST(PlanCosts, MessagesOfARoundOccupyARankOneAfterAnother) {
  constexpr LinkCosts kBusy{.seconds_per_message = 100, .seconds_per_byte = 1, .overhead_seconds = 10};
  const auto plans = plans_of(CollectiveKind::kBroadcast, PlanAlgorithm::kDirect, 8);
  EXPECT_DOUBLE_EQ(simulated_seconds(plans, {3}, kBusy), 100 + 7 * (10 + 3));
  EXPECT_DOUBLE_EQ(estimated_seconds(plans[0], {3}, kBusy), 100 + 7 * (10 + 3));
}

TEST(PlanCosts, ARankThatWaitsForEverIsAnError) {
  auto plans = plans_of(CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling, 2);
  plans[1].rounds.clear();
  EXPECT_THROW(simulated_seconds(plans, {8}, kLink), std::logic_error);
}

}  // namespace
}  // namespace lockstep
