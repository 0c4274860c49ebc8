#include "lockstep/training/reporting/records/rank_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

RankMemory rank_of(int64_t rank, const MemoryParts& measured) {
  return {
      .rank = rank, .measured = measured, .predicted = MemoryParts{.parameters = 100, .optimizer_state = 50}};
}

TEST(RankMemoryTest, ARowIsReadAsItWasWritten) {
  const RankMemory memory{
      .rank = 3,
      .measured = {.parameters = 1, .gradients = 2, .optimizer_state = 3, .buckets = 4, .gathered_units = 5},
      .predicted = MemoryParts{.parameters = 6, .buckets = 7}};
  const auto row = metric_row(memory);
  EXPECT_EQ(row.front(), (MetricRow::value_type("rank", int64_t{3})));
  EXPECT_THAT(row, ::testing::Contains(Pair("predicted_buckets", MetricValue(int64_t{7}))));
  EXPECT_THAT(row, ::testing::Not(::testing::Contains(Pair("predicted_optimizer_state", ::testing::_))));
  EXPECT_EQ(metric_row(rank_memory_of(row)), row);
  EXPECT_EQ(memory.measured.sum(), 15);
  EXPECT_FALSE(rank_memory_of(metric_row(RankMemory{})).predicted.has_value());
}

TEST(RankMemoryTest, ValuesThatAreNoBytesCountAsAbsent) {
  const auto memory = rank_memory_of({{"rank", "one"},
                                      {"parameters", int64_t{-1}},
                                      {"gradients", 1.5},
                                      {"optimizer_state", INT64_MAX},
                                      {"other", int64_t{1}},
                                      {"buckets", int64_t{8}}});
  EXPECT_EQ(memory.rank, 0);
  EXPECT_EQ(memory.measured.sum(), 8);
  EXPECT_FALSE(memory.measured.optimizer_state.has_value());
  EXPECT_FALSE(memory.predicted.has_value());
}

TEST(RankMemoryTest, PartsHaveTheLeastAndTheMostOfTheRanks) {
  const auto parts = parts_of_ranks({rank_of(0, {.parameters = 100, .optimizer_state = 40}),
                                     rank_of(1, {.parameters = 100, .optimizer_state = 60, .buckets = 5})});
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].name, "parameters");
  EXPECT_EQ(parts[1].name, "optimizer_state");
  EXPECT_EQ(parts[1].least, 40);
  EXPECT_EQ(parts[1].most, 60);
  EXPECT_EQ(parts[1].predicted, 50);
  EXPECT_EQ(parts[2].name, "buckets");
  EXPECT_EQ(parts[2].least, 0);
  EXPECT_EQ(parts[3].name, "sum");
  EXPECT_EQ(parts[3].least, 140);
  EXPECT_EQ(parts[3].most, 165);
  EXPECT_EQ(parts[3].predicted, 150);
  EXPECT_THAT(parts_of_ranks({}), IsEmpty());
}

TEST(RankMemoryTest, APartThatARankDoesNotKnowIsLeftOut) {
  const auto parts =
      parts_of_ranks({rank_of(0, {.parameters = 100}), {.rank = 1, .measured = {.parameters = 90}}});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "parameters");
  EXPECT_FALSE(parts[0].predicted.has_value());
  EXPECT_EQ(parts[1].name, "sum");
}

TEST(RankMemoryTest, CellsShowARangeOnlyIfItReadsDifferently) {
  EXPECT_THAT(cells_of({.name = "optimizer_state", .least = 1024, .most = 2048, .predicted = 4096}),
              ElementsAre("optimizer state", "1.0 KiB to 2.0 KiB", "4.0 KiB"));
  EXPECT_THAT(cells_of({.name = "buckets", .least = 10'240'000, .most = 10'240'001}),
              ElementsAre("buckets", "9.8 MiB", ""));
}

}  // namespace
}  // namespace lockstep
