#include "lockstep/parameter_server/service/step_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using Part = PushShards::Part;

Part dense(const std::string& shard, const at::Tensor& gradient) {
  return {.shard = shard, .gradient = gradient, .lr = 0.5, .version = 3};
}

Part by_rows(const std::string& shard, const at::Tensor& rows, const at::Tensor& gradient) {
  return {.shard = shard, .rows = rows, .gradient = gradient, .lr = 0.5, .version = 3};
}

TEST(StepCollector, WaitsForEachSlotToBeWhole) {
  StepCollector collector;
  EXPECT_THAT(collector.take(0, 2).missing, ElementsAre(0, 1));
  collector.add({.step = 0, .slot = 1, .is_last = false, .parts = {dense("a", torch::ones({2}))}});
  EXPECT_THAT(collector.take(0, 2).missing, ElementsAre(0, 1));
  collector.add({.step = 0, .slot = 1, .parts = {dense("b", torch::ones({2}))}});
  EXPECT_THAT(collector.take(0, 2).missing, ElementsAre(0));
  collector.add({.step = 0, .slot = 0, .parts = {dense("b", torch::ones({2}))}});
  const auto taken = collector.take(0, 2);
  EXPECT_THAT(taken.missing, IsEmpty());
  ASSERT_EQ(taken.summed.size(), 2U);
  EXPECT_EQ(taken.summed[0].shard, "a");
  EXPECT_TRUE(taken.summed[0].gradient.equal(torch::ones({2})));
  EXPECT_EQ(taken.summed[1].shard, "b");
  EXPECT_TRUE(taken.summed[1].gradient.equal(torch::full({2}, 2.F)));
  EXPECT_EQ(taken.summed[1].lr, 0.5);
  EXPECT_EQ(taken.summed[1].version, 3U);
}

TEST(StepCollector, GivesEachStepOnce) {
  StepCollector collector;
  collector.add({.step = 4, .parts = {dense("a", torch::ones({2}))}});
  EXPECT_EQ(collector.take(4, 1).summed.size(), 1U);
  const auto again = collector.take(4, 1);
  EXPECT_THAT(again.missing, IsEmpty());
  EXPECT_THAT(again.summed, IsEmpty());
  EXPECT_THAT(collector.take(5, 1).missing, ElementsAre(0));
}

TEST(StepCollector, TakesTheLastOfWhatASlotGivesTwice) {
  StepCollector collector;
  collector.add({.step = 0, .parts = {dense("a", torch::ones({2})), dense("b", torch::ones({2}))}});
  collector.add({.step = 0, .parts = {dense("a", torch::full({2}, 5.F))}});
  const auto summed = collector.take(0, 1).summed;
  ASSERT_EQ(summed.size(), 1U);
  EXPECT_TRUE(summed[0].gradient.equal(torch::full({2}, 5.F)));
}

TEST(StepCollector, DropsWhatIsOfAnEarlierStep) {
  StepCollector collector;
  collector.add({.step = 1, .slot = 0, .parts = {dense("a", torch::ones({2}))}});
  collector.add({.step = 0, .slot = 1, .parts = {dense("a", torch::ones({2}))}});
  EXPECT_THAT(collector.take(1, 2).missing, ElementsAre(1));
  // A step's leftovers do not count for the next step.
  collector.add({.step = 2, .slot = 1, .parts = {dense("a", torch::ones({2}))}});
  EXPECT_THAT(collector.take(2, 2).missing, ElementsAre(0));
}

TEST(StepCollector, RefusesASlotBeyondTheirNumber) {
  StepCollector collector;
  collector.add({.step = 0, .slot = 2, .parts = {}});
  EXPECT_THAT(
      [&] { collector.take(0, 2); },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected slots 0 to 1, but got gradients of slot 2")));
}

// The order of float additions changes the bits of the sum.
TEST(StepCollector, AddsInTheSlotsOrderWhoeverComesFirst) {
  torch::manual_seed(3);
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 5; ++i) gradients.push_back(torch::randn({1000}) * std::pow(10, i));
  at::Tensor expected = gradients[0];
  for (size_t i = 1; i < gradients.size(); ++i) expected = expected + gradients[i];
  std::mt19937 random(1);
  std::vector<uint32_t> order{0, 1, 2, 3, 4};
  for (uint64_t step = 0; step < 10; ++step) {
    StepCollector collector;
    std::shuffle(order.begin(), order.end(), random);
    for (const auto slot : order)
      collector.add({.step = step, .slot = slot, .parts = {dense("a", gradients[slot])}});
    EXPECT_TRUE(collector.take(step, 5).summed.at(0).gradient.equal(expected));
  }
  EXPECT_FALSE(gradients[1].equal(expected));
}

// Oracle: the same gradients as dense ones, with zeros elsewhere.
TEST(StepCollector, UnitesRows) {
  torch::manual_seed(4);
  const std::vector<at::Tensor> rows{torch::tensor({1, 4, 7}), torch::empty({0}, torch::kLong),
                                     torch::tensor({0, 4, 9}), torch::tensor({4})};
  std::vector<Part> parts;
  auto expected = torch::zeros({10, 3});
  for (const auto& own : rows) {
    const auto gradient = torch::randn({own.numel(), 3});
    parts.push_back(by_rows("table", own, gradient));
    expected.index_add_(0, own, gradient);
  }
  const auto sum = sum_parts(parts);
  EXPECT_TRUE(sum.rows.equal(torch::tensor({0, 1, 4, 7, 9})));
  EXPECT_TRUE(sum.gradient.equal(expected.index_select(0, sum.rows)));
}

TEST(StepCollector, RefusesGradientsThatCannotBeAdded) {
  const auto one = dense("table/part_0", torch::ones({2, 3}));
  const auto refuses = [&](const Part& first, const Part& second) {
    EXPECT_THAT(([&] {
                  sum_parts({first, second});
                }),
                ThrowsMessage<InvalidArgument>(HasSubstr("table/part_0: ")));
  };
  refuses(one, dense("table/part_0", torch::ones({3, 3})));
  refuses(one, dense("table/part_0", torch::ones({2, 3}, torch::kDouble)));
  refuses(one, dense("table/part_0", {}));
  auto other = one;
  other.lr = 1;
  refuses(one, other);
  other = one;
  other.version = 4;
  refuses(one, other);
  const auto rows = by_rows("table/part_0", torch::tensor({1, 2}), torch::ones({2, 3}));
  refuses(one, rows);
  refuses(rows, by_rows("table/part_0", torch::tensor({1}), torch::ones({1, 4})));
  refuses(rows, by_rows("table/part_0", torch::tensor({2, 1}), torch::ones({2, 3})));
  refuses(rows, by_rows("table/part_0", torch::tensor({1, 2, 3}), torch::ones({2, 3})));
  refuses(rows, by_rows("table/part_0", torch::tensor({.5, 1.}), torch::ones({2, 3})));
  refuses(by_rows("table/part_0", torch::tensor({1}), torch::ones({})),
          by_rows("table/part_0", torch::tensor({1}), torch::ones({})));
}

TEST(StepCollector, TakesGradientsOfManyThreads) {
  StepCollector collector;
  for (uint64_t step = 0; step < 50; ++step) {
    std::vector<std::thread> threads;
    for (uint32_t slot = 0; slot < 4; ++slot) {
      threads.emplace_back([&, slot] {
        collector.add(
            {.step = step, .slot = slot, .is_last = false, .parts = {dense("a", torch::ones({8}))}});
        collector.add({.step = step, .slot = slot, .parts = {dense("b", torch::ones({8}))}});
      });
    }
    for (auto& thread : threads) thread.join();
    const auto taken = collector.take(step, 4);
    ASSERT_EQ(taken.summed.size(), 2U);
    for (const auto& part : taken.summed) EXPECT_TRUE(part.gradient.equal(torch::full({8}, 4.F)));
  }
}

TEST(StepCollector, ANumberOfSlotsThatCannotBeIsRefused) {
  StepCollector collector;
  EXPECT_THAT([&] { collector.take(1, UINT32_MAX); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected up to 65536 slots, but got 4294967295")));
}

}  // namespace
}  // namespace lockstep
