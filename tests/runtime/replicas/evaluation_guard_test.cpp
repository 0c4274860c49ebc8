#include "lockstep/runtime/replicas/evaluation_guard.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

namespace lockstep {
namespace {

/// A module in training mode, of which only the second part is in evaluation mode.
torch::nn::Sequential mixed_flags() {
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::Dropout(0.5), torch::nn::Linear(2, 2));
  model->train();
  model[1]->eval();
  return model;
}

TEST(EvaluationGuard, SwitchesEveryPartToEvaluationWhileItLives) {
  auto model = mixed_flags();
  const EvaluationGuard evaluation(*model);
  for (const auto& part : model->modules()) EXPECT_FALSE(part->is_training()) << part->name();
}

TEST(EvaluationGuard, PutsBackEachFlagAndNotTheParentsOntoAll) {
  auto model = mixed_flags();
  const auto before = training_flags(*model);
  { const EvaluationGuard evaluation(*model); }
  EXPECT_EQ(training_flags(*model), before);
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(model[1]->is_training());
  EXPECT_TRUE(model[2]->is_training());
}

TEST(EvaluationGuard, PutsBackTheFlagsWhenTheEvaluationThrows) {
  auto model = mixed_flags();
  const auto before = training_flags(*model);
  try {
    const EvaluationGuard evaluation(*model);
    throw std::runtime_error("no output");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(training_flags(*model), before);
}

}  // namespace
}  // namespace lockstep
