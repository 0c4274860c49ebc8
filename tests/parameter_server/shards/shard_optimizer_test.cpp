#include "lockstep/parameter_server/shards/shard_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const torch::Tensor&)>;

struct RuleCase {
  std::string name;
  UpdateRule rule;
  MakeOptimizer make;          // the same in torch::optim
  MakeOptimizer make_fused{};  // the same, fused; empty if there is no fused one
};

constexpr double kLr = 0.05;

template <typename Optimizer, typename Options>
MakeOptimizer maker(const Options& options) {
  return [options](const torch::Tensor& parameter) {
    return std::make_unique<Optimizer>(std::vector<torch::Tensor>{parameter}, options);
  };
}

std::vector<RuleCase> all_rules() {
  using torch::optim::AdagradOptions;
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  const auto betas = std::make_tuple(0.8, 0.95);
  return {
      {"sgd", SgdRule{}, maker<torch::optim::SGD>(SGDOptions(kLr)), maker<FusedSgd>(FusedSgdOptions(kLr))},
      {"momentum", SgdRule{.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
       maker<torch::optim::SGD>(SGDOptions(kLr).momentum(0.9).dampening(0.1).weight_decay(0.01)),
       maker<FusedSgd>(FusedSgdOptions(kLr).momentum(0.9).dampening(0.1).weight_decay(0.01))},
      {"nesterov", SgdRule{.momentum = 0.9, .nesterov = true},
       maker<torch::optim::SGD>(SGDOptions(kLr).momentum(0.9).nesterov(true)),
       maker<FusedSgd>(FusedSgdOptions(kLr).momentum(0.9).nesterov(true))},
      {"adagrad",
       AdagradRule{.lr_decay = 0.1, .weight_decay = 0.01, .initial_accumulator_value = 0.1, .eps = 1e-8},
       maker<torch::optim::Adagrad>(
           AdagradOptions(kLr).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.1).eps(1e-8))},
      {"adam", AdamRule{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.01},
       maker<torch::optim::Adam>(AdamOptions(kLr).betas(betas).eps(1e-6).weight_decay(0.01)),
       maker<FusedAdam>(FusedAdamOptions(kLr).betas(betas).eps(1e-6).weight_decay(0.01))},
      {"amsgrad", AdamRule{.beta1 = 0.8, .beta2 = 0.95, .amsgrad = true},
       maker<torch::optim::Adam>(AdamOptions(kLr).betas(betas).amsgrad(true)),
       maker<FusedAdam>(FusedAdamOptions(kLr).betas(betas).amsgrad(true))},
      {"adamw", AdamRule{.weight_decay = 0.1, .is_decoupled = true},
       maker<torch::optim::AdamW>(AdamWOptions(kLr).weight_decay(0.1)),
       maker<FusedAdamW>(FusedAdamWOptions(kLr).weight_decay(0.1))},
  };
}

class ShardOptimizerRules : public ::testing::TestWithParam<RuleCase> {
 protected:
  /// The largest difference over 20 steps with the same gradients and a changing learning rate.
  static double difference(const MakeOptimizer& make, at::ScalarType dtype) {
    torch::manual_seed(3);
    auto parameter = torch::randn({7, 5}, dtype);
    ShardOptimizer shard(parameter.clone(), GetParam().rule);
    const auto optimizer = make(parameter);
    for (int step = 0; step < 20; ++step) {
      const auto gradient = torch::randn({7, 5}, dtype);
      const double lr = kLr / (1 + 0.1 * step);
      parameter.mutable_grad() = gradient.clone();
      optimizer->param_groups()[0].options().set_lr(lr);
      optimizer->step();
      shard.step(gradient, lr);
    }
    EXPECT_EQ(shard.num_steps(), 20);
    return (shard.values() - parameter).abs().max().item<double>();
  }
};

TEST_P(ShardOptimizerRules, StepAsTorchsClasses) {
  EXPECT_LT(difference(GetParam().make, torch::kDouble), 1e-12);
  EXPECT_LT(difference(GetParam().make, torch::kFloat), 2e-6);
}

TEST_P(ShardOptimizerRules, StepBitByBitAsTheFusedClasses) {
  if (!GetParam().make_fused) GTEST_SKIP() << "there is no fused class of this rule";
  EXPECT_EQ(difference(GetParam().make_fused, torch::kDouble), 0);
  EXPECT_EQ(difference(GetParam().make_fused, torch::kFloat), 0);
}

TEST_P(ShardOptimizerRules, GoOnFromTheirStateInAnotherOptimizer) {
  torch::manual_seed(4);
  ShardOptimizer first(torch::randn({4, 3}), GetParam().rule);
  for (int step = 0; step < 3; ++step) first.step(torch::randn({4, 3}), kLr);
  ShardOptimizer second(first.values().clone(), GetParam().rule);
  const auto saved = first.state();
  const auto own = second.state();
  ASSERT_EQ(own.size(), saved.size());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].first, saved[i].first);
    own[i].second.copy_(saved[i].second);
  }
  const auto gradient = torch::randn({4, 3});
  first.step(gradient, kLr);
  second.step(gradient, kLr);
  EXPECT_TRUE(second.values().equal(first.values()));
}

INSTANTIATE_TEST_SUITE_P(Rules, ShardOptimizerRules, ::testing::ValuesIn(all_rules()),
                         [](const auto& rule) { return rule.param.name; });

TEST(ShardOptimizer, StepsAScalar) {
  ShardOptimizer shard(torch::tensor(2.0), SgdRule{});
  shard.step(torch::tensor(1.0), 0.5);
  EXPECT_EQ(shard.values().item<double>(), 1.5);
}

TEST(ShardOptimizer, MaximizesByTheGradientsNegative) {
  for (const UpdateRule& rule :
       {UpdateRule(SgdRule{.maximize = true}), UpdateRule(AdagradRule{.maximize = true}),
        UpdateRule(AdamRule{.maximize = true})}) {
    ShardOptimizer shard(torch::zeros({2, 2}, torch::kDouble), rule);
    shard.step(torch::ones({2, 2}, torch::kDouble), kLr);
    shard.step_rows(torch::tensor({0}), torch::ones({1, 2}, torch::kDouble), kLr);
    EXPECT_GT(shard.values()[1].min().item<double>(), 0) << rule.index();
    EXPECT_GT(shard.values()[0].min().item<double>(), shard.values()[1].max().item<double>()) << rule.index();
  }
}

TEST(ShardOptimizer, RefusesGradientsOfAnotherShapeOrType) {
  ShardOptimizer shard(torch::zeros({2, 3}), SgdRule{});
  EXPECT_THAT(
      [&] {
        shard.step(torch::zeros({3, 2}), kLr);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("of shape [2, 3]"), HasSubstr("of shape [3, 2]"))));
  EXPECT_THAT(
      [&] {
        shard.step(torch::zeros({2, 3}, torch::kDouble), kLr);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("CPUDoubleType")));
  EXPECT_THAT([&] { shard.step({}, kLr); }, ThrowsMessage<InvalidArgument>(HasSubstr("got none")));
  EXPECT_EQ(shard.num_steps(), 0);
}

TEST(ShardOptimizer, RefusesValuesThatItCannotStep) {
  EXPECT_THROW(ShardOptimizer(torch::zeros({2}, torch::kLong), SgdRule{}), InvalidArgument);
  EXPECT_THROW(ShardOptimizer(torch::zeros({2, 3}).t(), SgdRule{}), InvalidArgument);
  EXPECT_THROW(ShardOptimizer({}, SgdRule{}), InvalidArgument);
}

TEST(ShardOptimizer, RefusesRulesOutOfRange) {
  const auto refuses = [](const UpdateRule& rule, const std::string& name) {
    EXPECT_THAT([&] { ShardOptimizer(torch::zeros({2}), rule); },
                ThrowsMessage<InvalidArgument>(HasSubstr(name + ":")));
  };
  refuses(SgdRule{.momentum = -1}, "momentum");
  refuses(SgdRule{.weight_decay = -1}, "weight_decay");
  refuses(SgdRule{.nesterov = true}, "nesterov");
  refuses(AdagradRule{.lr_decay = -1}, "lr_decay");
  refuses(AdagradRule{.initial_accumulator_value = -1}, "initial_accumulator_value");
  refuses(AdagradRule{.eps = -1}, "eps");
  refuses(AdamRule{.beta1 = 1}, "beta1");
  refuses(AdamRule{.beta2 = -0.1}, "beta2");
  refuses(AdamRule{.eps = std::numeric_limits<double>::quiet_NaN()}, "eps");
}

}  // namespace
}  // namespace lockstep
