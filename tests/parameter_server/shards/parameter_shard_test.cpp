#include "lockstep/parameter_server/shards/parameter_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParameterShard, GivesACopyOfItsValues) {
  auto values = torch::arange(6, torch::kFloat).view({3, 2});
  ParameterShard shard("table", values, SgdRule{});
  values.zero_();  // the shard has its own copy
  shard.pull().values.fill_(9);
  EXPECT_TRUE(shard.pull().values.equal(torch::arange(6, torch::kFloat).view({3, 2})));
}

TEST(ParameterShard, GivesRowsInTheOrderThatTheyWereAskedFor) {
  ParameterShard shard("table", torch::arange(6, torch::kFloat).view({3, 2}), SgdRule{});
  EXPECT_TRUE(shard.pull_rows(torch::tensor({2, 0, 2}))
                  .values.equal(torch::tensor({{4.F, 5.F}, {0.F, 1.F}, {4.F, 5.F}})));
  EXPECT_EQ(shard.pull_rows(torch::empty({0}, torch::kLong)).values.sizes(), (std::vector<int64_t>{0, 2}));
}

TEST(ParameterShard, NamesItselfAndTheRowThatItDoesNotHave) {
  ParameterShard shard("table/part_1", torch::zeros({3, 2}), SgdRule{});
  EXPECT_THAT(
      [&] {
        shard.pull_rows(torch::tensor({0, 3}));
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("table/part_1: "), HasSubstr("0 to 2, but got 3"))));
  EXPECT_THROW(shard.pull_rows(torch::tensor({-1})), InvalidArgument);
  EXPECT_THROW(shard.pull_rows(torch::tensor({0.5})), InvalidArgument);
  EXPECT_THAT([&] { shard.push(torch::zeros({1}), {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("table/part_1: ")));
  EXPECT_THAT([] { ParameterShard("whole numbers", torch::zeros({3}, torch::kLong), SgdRule{}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("whole numbers: ")));
}

TEST(ParameterShard, StepsByEachPushOnce) {
  ParameterShard shard("bias", torch::zeros({2}), SgdRule{});
  const auto gradient = torch::ones({2});
  EXPECT_EQ(shard.push(gradient, {.id = {0, 0}, .lr = 1}).outcome, PushOutcome::kApplied);
  const auto again = shard.push(gradient, {.id = {0, 0}, .lr = 1});
  EXPECT_EQ(again.outcome, PushOutcome::kRepeated);
  EXPECT_EQ(again.version, 1U);
  EXPECT_EQ(shard.push(gradient, {.id = {0, 1}, .lr = 1}).outcome, PushOutcome::kApplied);
  EXPECT_TRUE(shard.pull().values.equal(torch::full({2}, -2.F)));
}

TEST(ParameterShard, TakesNoLatePushOfAClosureThatIsDone) {
  ParameterShard shard("bias", torch::zeros({2}), SgdRule{});
  shard.forget_before(3);
  EXPECT_EQ(shard.push(torch::ones({2}), {.id = {2, 0}, .lr = 1}).outcome, PushOutcome::kRepeated);
  EXPECT_EQ(shard.push(torch::ones({2}), {.id = {3, 0}, .lr = 1}).outcome, PushOutcome::kApplied);
}

TEST(ParameterShard, CountsTheStepsThatCameBetweenAPullAndItsPush) {
  ParameterShard shard("bias", torch::zeros({2}), SgdRule{});
  const auto pulled = shard.pull();
  EXPECT_EQ(pulled.version, 0U);
  for (uint64_t other = 0; other < 3; ++other)
    EXPECT_EQ(shard.push(torch::ones({2}), {.id = {other, 0}, .version = other}).staleness, 0U);
  const auto result = shard.push(torch::ones({2}), {.id = {9, 0}, .version = pulled.version});
  EXPECT_EQ(result.staleness, 3U);
  EXPECT_EQ(result.version, 4U);
  EXPECT_EQ(shard.pull().version, 4U);
}

// The server was restarted, and its saved state is older than the version that a worker has pulled.
TEST(ParameterShard, StepsByNoGradientOfValuesThatAreLost) {
  ParameterShard shard("bias", torch::zeros({2}), SgdRule{});
  const auto saved = shard.save();
  shard.push(torch::ones({2}), {.id = {0, 0}, .lr = 1});
  const auto pulled = shard.pull();
  shard.restore(saved);
  const auto result = shard.push(torch::ones({2}), {.id = {1, 0}, .lr = 1, .version = pulled.version});
  EXPECT_EQ(result.outcome, PushOutcome::kOutdated);
  EXPECT_EQ(result.version, 0U);
  EXPECT_TRUE(shard.pull().values.equal(torch::zeros({2})));
  // A gradient of existing values is applied, though it has the same closure's number.
  EXPECT_EQ(shard.push(torch::ones({2}), {.id = {1, 0}, .lr = 1}).outcome, PushOutcome::kApplied);
}

TEST(ParameterShard, TakesAPushAgainThatFailed) {
  ParameterShard shard("bias", torch::zeros({2}), SgdRule{});
  const PushedStep step{.id = {1, 0}, .lr = 1};
  EXPECT_THROW(shard.push(torch::ones({3}), step), InvalidArgument);
  EXPECT_EQ(shard.pull().version, 0U);
  EXPECT_EQ(shard.push(torch::ones({2}), step).outcome, PushOutcome::kApplied);
}

TEST(ParameterShard, GoesOnFromWhatAnotherSaved) {
  torch::manual_seed(8);
  ParameterShard first("table", torch::randn({5, 3}), AdamRule{});
  for (uint64_t i = 0; i < 3; ++i) first.push(torch::randn({5, 3}), {.id = {i, 0}, .lr = 0.1});
  const auto saved = first.save();
  ParameterShard second("table", torch::zeros({5, 3}), AdamRule{});
  second.restore(saved);
  const PushedStep step{.id = {7, 0}, .lr = 0.1, .version = 2};
  const auto rows = torch::tensor({1, 4});
  const auto gradients = torch::randn({2, 3});
  EXPECT_EQ(first.push_rows(rows, gradients, step).staleness, 1U);
  EXPECT_EQ(second.push_rows(rows, gradients, step).staleness, 1U);
  EXPECT_TRUE(second.pull().values.equal(first.pull().values));
  EXPECT_EQ(second.push(torch::zeros({5, 3}), {.id = {2, 0}}).outcome,
            PushOutcome::kRepeated);                      // the first one had applied it
  EXPECT_FALSE(saved.values.equal(first.pull().values));  // a copy
}

TEST(ParameterShard, RestoresNothingOfAnotherShardsState) {
  ParameterShard shard("table", torch::ones({5, 3}), AdamRule{});
  const auto refuses = [&](const ParameterShard::Saved& saved, const std::string& text) {
    EXPECT_THAT([&] { shard.restore(saved); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
    EXPECT_TRUE(shard.pull().values.equal(torch::ones({5, 3})));
  };
  refuses(ParameterShard("", torch::zeros({4, 3}), AdamRule{}).save(),
          "values: expected CPUFloatType of shape [5, 3]");
  refuses(ParameterShard("", torch::zeros({5, 3}), AdagradRule{}).save(), "expected exp_avg, but got sum");
  refuses(ParameterShard("", torch::zeros({5, 3}), SgdRule{}).save(),
          "expected exp_avg, but got nothing more");
  refuses(ParameterShard("", torch::zeros({5, 3}), AdamRule{.amsgrad = true}).save(), "got max_exp_avg_sq");
  auto torn = ParameterShard("", torch::zeros({5, 3}), AdamRule{}).save();
  torn.optimizer[1].second = torn.optimizer[1].second[0];
  refuses(torn, "exp_avg: expected CPUFloatType of shape [5, 3], but got CPUFloatType of shape [3]");
}

// Each of the workers' pushes arrives several times, from several threads.
TEST(ParameterShard, LosesAndRepeatsNoStepOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr uint64_t kPushes = 200;
  ParameterShard shard("bias", torch::zeros({3}, torch::kDouble), SgdRule{});
  std::atomic<uint64_t> num_applied{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (uint64_t number = 0; number < kPushes; ++number) {
        const auto pulled = shard.pull();
        // Every step adds the same to all elements: a torn copy would hold two different values.
        EXPECT_EQ(pulled.values[0].item<double>(), pulled.values[2].item<double>());
        const auto result = shard.push(torch::ones({3}, torch::kDouble),
                                       {.id = {0, number}, .lr = 1, .version = pulled.version});
        if (result.outcome == PushOutcome::kApplied) ++num_applied;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_applied, kPushes);
  EXPECT_EQ(shard.pull().version, kPushes);
  EXPECT_TRUE(shard.pull().values.equal(torch::full({3}, -static_cast<double>(kPushes), torch::kDouble)));
}

}  // namespace
}  // namespace lockstep
