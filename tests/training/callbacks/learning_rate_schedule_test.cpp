#include "lockstep/training/callbacks/learning_rate_schedule.h"

#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

TEST(CosineDecay, FallsFromOneToZeroAlongHalfACosine) {
  EXPECT_EQ(cosine_decay(0, 12), 1.0);
  // cos of 30, 60, 90 and 150 degrees.
  EXPECT_NEAR(cosine_decay(2, 12), 0.5 + 0.25 * std::sqrt(3.0), 1e-15);
  EXPECT_NEAR(cosine_decay(4, 12), 0.75, 1e-15);
  EXPECT_NEAR(cosine_decay(6, 12), 0.5, 1e-15);
  EXPECT_NEAR(cosine_decay(10, 12), 0.5 - 0.25 * std::sqrt(3.0), 1e-15);
  EXPECT_EQ(cosine_decay(12, 12), 0.0);
}

TEST(CosineDecay, StaysAtZeroAfterTheLastStep) {
  EXPECT_EQ(cosine_decay(13, 12), 0.0);
  EXPECT_EQ(cosine_decay(INT64_MAX, 12), 0.0);
}

TEST(CosineDecay, RefusesWhatIsNoStepOfASchedule) {
  const auto refusal = [](int64_t step, int64_t num_steps) -> std::string {
    try {
      cosine_decay(step, num_steps);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal(-1, 12), "[cosine_decay] expected a step from 0, but got -1");
  EXPECT_EQ(refusal(0, 0), "[cosine_decay] expected 1 step or more in all, but got 0");
}

// SGD without momentum moves a parameter by its learning rate times its gradient.
TEST(SetLearningRate, HoldsForEveryGroupFromTheNextStepOn) {
  const auto first = torch::ones({1}, torch::requires_grad());
  const auto second = torch::ones({1}, torch::requires_grad());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{first}, std::make_unique<torch::optim::SGDOptions>(0.5));
  groups.emplace_back(std::vector{second}, std::make_unique<torch::optim::SGDOptions>(0.125));
  torch::optim::SGD optimizer(groups, {1.0});
  (first + second).backward();
  set_learning_rate(optimizer, 0.25);
  optimizer.step();
  EXPECT_EQ(first.item<float>(), 0.75F);
  EXPECT_EQ(second.item<float>(), 0.75F);
}

TEST(SetLearningRate, IsReadBackFromAFusedOptimizer) {
  FusedAdam optimizer({torch::ones({1}, torch::requires_grad())}, 0.001);
  set_learning_rate(optimizer, 0.0625);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.0625);
}

}  // namespace
}  // namespace lockstep
