#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "lockstep/parameter_server/shards/shard_optimizer.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kRate = 0.05;
constexpr int64_t kRows = 12;
constexpr int64_t kColumns = 5;

/// Some rows, in ascending order; sometimes none.
torch::Tensor some_rows() {
  return torch::nonzero(torch::rand({kRows}) < 0.3).flatten();
}

/// The largest difference to torch::optim after 20 steps with sparse gradients.
template <typename Optimizer, typename Options>
double difference_to(const Options& options, const UpdateRule& rule, at::ScalarType dtype) {
  torch::manual_seed(5);
  auto parameter = torch::randn({kRows, kColumns}, dtype);
  ShardOptimizer shard(parameter.clone(), rule);
  Optimizer optimizer(std::vector<torch::Tensor>{parameter}, options);
  for (int step = 0; step < 20; ++step) {
    const auto rows = some_rows();
    const auto gradients = torch::randn({rows.numel(), kColumns}, dtype);
    parameter.mutable_grad() =
        torch::sparse_coo_tensor(rows.unsqueeze(0), gradients, {kRows, kColumns}).coalesce();
    optimizer.step();
    shard.step_rows(rows, gradients, kRate);
  }
  EXPECT_EQ(shard.num_steps(), 20);
  return (shard.values() - parameter).abs().max().template item<double>();
}

TEST(ShardOptimizerRows, StepAsTorchsSgdBySparseGradients) {
  const torch::optim::SGDOptions options(kRate);
  EXPECT_LT(difference_to<torch::optim::SGD>(options, SgdRule{}, torch::kDouble), 1e-12);
  EXPECT_LT(difference_to<torch::optim::SGD>(options, SgdRule{}, torch::kFloat), 1e-6);
}

TEST(ShardOptimizerRows, StepAsTorchsAdagradBySparseGradients) {
  const auto options = torch::optim::AdagradOptions(kRate).lr_decay(0.1).initial_accumulator_value(0.1);
  const AdagradRule rule{.lr_decay = 0.1, .initial_accumulator_value = 0.1};
  EXPECT_LT(difference_to<torch::optim::Adagrad>(options, rule, torch::kDouble), 1e-12);
  EXPECT_LT(difference_to<torch::optim::Adagrad>(options, rule, torch::kFloat), 1e-6);
}

/// Rules that can step single rows.
std::vector<UpdateRule> row_rules() {
  return {SgdRule{}, AdagradRule{.lr_decay = 0.1}, AdamRule{.beta1 = 0.8}, AdamRule{.amsgrad = true}};
}

// One shard steps all rows with the row kernels, the other one with the kernel for the whole.
TEST(ShardOptimizerRows, OfAllRowsStepAsTheWhole) {
  for (const auto& rule : row_rules()) {
    torch::manual_seed(6);
    const auto values = torch::randn({kRows, kColumns}, torch::kDouble);
    ShardOptimizer by_rows(values.clone(), rule);
    ShardOptimizer whole(values.clone(), rule);
    for (int step = 0; step < 20; ++step) {
      const auto gradient = torch::randn({kRows, kColumns}, torch::kDouble);
      by_rows.step_rows(torch::arange(kRows), gradient, kRate);
      whole.step(gradient, kRate);
    }
    EXPECT_LT((by_rows.values() - whole.values()).abs().max().item<double>(), 1e-12) << rule.index();
    for (size_t i = 0; i < whole.state().size(); ++i) {
      EXPECT_LT((by_rows.state()[i].second - whole.state()[i].second).abs().max().item<double>(), 1e-12)
          << rule.index() << whole.state()[i].first;
    }
  }
}

TEST(ShardOptimizerRows, LeaveTheOthersAndTheirStateAlone) {
  for (const auto& rule : row_rules()) {
    torch::manual_seed(7);
    ShardOptimizer shard(torch::randn({kRows, kColumns}), rule);
    shard.step(torch::randn({kRows, kColumns}), kRate);  // so that there are moments to leave unchanged
    const auto before = shard.values().clone();
    std::vector<torch::Tensor> state_before;
    for (const auto& [name, tensor] : shard.state()) state_before.push_back(tensor.clone());
    shard.step_rows(torch::tensor({2, 7}), torch::ones({2, kColumns}), kRate);
    const auto is_changed = [](const torch::Tensor& now, const torch::Tensor& then) {
      return (now != then).any(1).nonzero().flatten();
    };
    EXPECT_TRUE(is_changed(shard.values(), before).equal(torch::tensor({2, 7}))) << rule.index();
    for (size_t i = 1; i < state_before.size(); ++i)  // the first is the step
      EXPECT_TRUE(torch::isin(is_changed(shard.state()[i].second, state_before[i]), torch::tensor({2, 7}))
                      .all()
                      .item<bool>());
  }
}

TEST(ShardOptimizerRows, CountAStepThoughThereAreNone) {
  ShardOptimizer shard(torch::zeros({kRows, kColumns}), AdamRule{});
  shard.step_rows(torch::empty({0}, torch::kLong), torch::empty({0, kColumns}), kRate);
  EXPECT_EQ(shard.num_steps(), 1);
  EXPECT_TRUE(shard.values().equal(torch::zeros({kRows, kColumns})));
}

TEST(ShardOptimizerRows, RefuseRulesThatStepAllRows) {
  for (const auto& [rule, name] : std::vector<std::pair<UpdateRule, std::string>>{
           {SgdRule{.momentum = 0.9}, "momentum"},
           {SgdRule{.weight_decay = 0.1}, "weight_decay"},
           {AdagradRule{.weight_decay = 0.1}, "weight_decay"},
           {AdamRule{.weight_decay = 0.1, .is_decoupled = true}, "weight_decay"}}) {
    ShardOptimizer shard(torch::zeros({2, 2}), rule);
    EXPECT_THAT(
        [&] {
          shard.step_rows(torch::tensor({0}), torch::zeros({1, 2}), kRate);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("a step by " + name + " changes all rows")));
  }
}

TEST(ShardOptimizerRows, RefuseOtherRowsThanThereAre) {
  ShardOptimizer shard(torch::zeros({4, 2}), SgdRule{});
  const auto refuses = [&](const torch::Tensor& rows, const std::string& text) {
    EXPECT_THAT(
        [&] {
          shard.step_rows(rows, torch::ones({rows.numel(), 2}), kRate);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refuses(torch::tensor({0, 4}), "expected rows of 0 to 3, but got 4");
  refuses(torch::tensor({-1}), "expected rows of 0 to 3, but got -1");
  refuses(torch::tensor({2, 2}), "expected rows in ascending order, but got 2 after 2");
  refuses(torch::tensor({3, 1}), "expected rows in ascending order, but got 1 after 3");
  refuses(torch::tensor({0}, torch::kInt), "expected rows as an int64 vector");
  refuses(torch::tensor({{0}}), "expected rows as an int64 vector");
  EXPECT_EQ(shard.num_steps(), 0);
  EXPECT_TRUE(shard.values().equal(torch::zeros({4, 2})));
}

TEST(ShardOptimizerRows, RefuseGradientsOfOtherShapesAndTypes) {
  ShardOptimizer shard(torch::zeros({4, 2}), SgdRule{});
  EXPECT_THAT(
      [&] {
        shard.step_rows(torch::tensor({0, 1}), torch::ones({1, 2}), kRate);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("of shape [2, 2]"), HasSubstr("of shape [1, 2]"))));
  EXPECT_THROW(shard.step_rows(torch::tensor({0}), torch::ones({1, 2}, torch::kDouble), kRate),
               InvalidArgument);
  EXPECT_EQ(shard.num_steps(), 0);
}

}  // namespace
}  // namespace lockstep
