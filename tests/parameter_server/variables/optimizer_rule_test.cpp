#include "lockstep/parameter_server/variables/optimizer_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/parameter_server/shards/shard_optimizer.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Parameters = std::vector<torch::Tensor>;
using MakeOverParameters = std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;

template <typename Optimizer, typename Options>
MakeOverParameters maker_over(const Options& options) {
  return [options](Parameters parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

/// Optimizers that together set every option of every rule to a non-default value.
std::vector<MakeOverParameters> optimizers() {
  using namespace torch::optim;
  return {
      maker_over<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.02)),
      maker_over<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true)),
      maker_over<Adagrad>(
          AdagradOptions(0.1).lr_decay(0.3).weight_decay(0.1).initial_accumulator_value(0.2).eps(1e-3)),
      maker_over<Adam>(AdamOptions(0.1).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.1).amsgrad(true)),
      maker_over<AdamW>(AdamWOptions(0.1).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.1)),
      maker_over<FusedSgd>(
          FusedSgdOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.02).maximize(true)),
      maker_over<FusedSgd>(FusedSgdOptions(0.1).momentum(0.9).nesterov(true)),
      maker_over<FusedAdam>(
          FusedAdamOptions(0.1).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.1).maximize(true)),
      maker_over<FusedAdamW>(
          FusedAdamWOptions(0.1).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.1).amsgrad(true)),
  };
}

TEST(OptimizerRule, MakesServersStepAsTheOptimizerDoes) {
  torch::manual_seed(6);
  int number = 0;
  for (const auto& make : optimizers()) {
    const auto parameter = torch::randn({5, 4}, torch::kDouble).set_requires_grad(true);
    const auto optimizer = make({parameter});
    ShardOptimizer shard(parameter.detach().clone(), update_rule_of(*optimizer, 0));
    for (int step = 0; step < 5; ++step) {
      parameter.mutable_grad() = torch::randn({5, 4}, torch::kDouble);
      shard.step(parameter.grad(), optimizer->param_groups()[0].options().get_lr());
      optimizer->step();
    }
    EXPECT_TRUE(shard.values().allclose(parameter.detach(), 0, 1e-12)) << "optimizer " << number;
    ++number;
  }
}

TEST(OptimizerRule, IsOfEachParameterGroup) {
  const auto group = [](double momentum) {
    return torch::optim::OptimizerParamGroup(
        {torch::ones({1}, torch::requires_grad())},
        std::make_unique<FusedSgdOptions>(FusedSgdOptions(0.1).momentum(momentum)));
  };
  const FusedSgd optimizer(std::vector<torch::optim::OptimizerParamGroup>{group(0.5), group(0.25)});
  EXPECT_EQ(update_rule_of(optimizer, 0), UpdateRule(SgdRule{.momentum = 0.5}));
  EXPECT_EQ(update_rule_of(optimizer, 1), UpdateRule(SgdRule{.momentum = 0.25}));
}

/// A user's own optimizer, which servers step as if it were SGD.
class OwnSgd : public torch::optim::SGD, public HasUpdateRule {
 public:
  using SGD::SGD;
  UpdateRule update_rule(size_t /*group*/) const override { return SgdRule{.weight_decay = 0.5}; }
};

TEST(OptimizerRule, IsWhatAUsersOwnOptimizerSays) {
  const OwnSgd optimizer({torch::ones({1}, torch::requires_grad())},
                         torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_EQ(update_rule_of(optimizer, 0), UpdateRule(SgdRule{.weight_decay = 0.5}));
}

TEST(OptimizerRule, OfAnotherOptimizerIsRefused) {
  const torch::optim::RMSprop optimizer({torch::ones({1}, torch::requires_grad())}, 0.1);
  EXPECT_THAT([&] { update_rule_of(optimizer, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got torch::optim::RMSprop")));
}

}  // namespace
}  // namespace lockstep
