#include "lockstep/apps/train_images/training/optimizer_choice.h"

#include <gtest/gtest.h>

#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep::apps {
namespace {

// Differs from every default of the options.
constexpr double kLearningRate = 0.0625;

Optimizer make_with(const TrainOptions& options, const torch::Tensor& parameter = torch::ones({2})) {
  return make_optimizer(options, kLearningRate, {parameter});
}

/// The options of the optimizer's only group; the optimizer must be an `Expected`.
template <typename Expected, typename Options>
Options options_of_group(const Optimizer& optimizer) {
  EXPECT_NE(dynamic_cast<const Expected*>(optimizer.get()), nullptr);
  EXPECT_EQ(optimizer->param_groups().size(), 1U);
  return dynamic_cast<const Options&>(optimizer->param_groups().at(0).options());
}

TEST(OptimizerChoice, MakesAdam) {
  const auto made = make_with({.optimizer = OptimizerKind::kAdam});
  const auto options = options_of_group<FusedAdam, FusedAdamOptions>(made);
  EXPECT_EQ(options.lr(), kLearningRate);
  EXPECT_EQ(options.weight_decay(), 0);
}

TEST(OptimizerChoice, MakesAdamW) {
  const auto made = make_with({.optimizer = OptimizerKind::kAdamW});
  const auto options = options_of_group<FusedAdamW, FusedAdamWOptions>(made);
  EXPECT_EQ(options.lr(), kLearningRate);
  EXPECT_EQ(options.weight_decay(), 0.01);
}

TEST(OptimizerChoice, MakesSgdWithItsMomentum) {
  for (const double momentum : {0.0, 0.5}) {
    const auto made = make_with({.optimizer = OptimizerKind::kSgd, .momentum = momentum});
    const auto options = options_of_group<FusedSgd, FusedSgdOptions>(made);
    EXPECT_EQ(options.lr(), kLearningRate);
    EXPECT_EQ(options.momentum(), momentum);
  }
}

TEST(OptimizerChoice, HandsOnTheParameters) {
  const auto parameter = torch::ones({2}).requires_grad_();
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    const auto made = make_with({.optimizer = kind}, parameter);
    ASSERT_EQ(made->parameters().size(), 1U);
    EXPECT_TRUE(made->parameters()[0].is_same(parameter)) << optimizer_name(kind);
  }
}

}  // namespace
}  // namespace lockstep::apps
