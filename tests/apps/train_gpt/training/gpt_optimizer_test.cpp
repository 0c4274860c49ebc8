#include "lockstep/apps/train_gpt/training/gpt_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep::apps {
namespace {

GptOptions tiny(GptFamily family) {
  GptTrainOptions options;
  options.family = family;
  options.layers = 2;
  options.hidden = 32;
  return model_to_train(options, base_model(options), 50);
}

std::set<std::string> names_of(const Gpt& model, const std::vector<torch::Tensor>& tensors) {
  std::set<std::string> names;
  for (const auto& item : model->named_parameters()) {
    const auto is_same = [&](const torch::Tensor& tensor) { return tensor.is_same(item.value()); };
    if (std::any_of(tensors.begin(), tensors.end(), is_same)) names.insert(item.key());
  }
  return names;
}

TEST(GptOptimizerTest, NormsBiasesAndEmbeddingsDoNotDecay) {
  for (const auto family : {GptFamily::kGpt2, GptFamily::kLlama}) {
    const Gpt model(tiny(family));
    const auto [decayed, undecayed] = decay_groups(model);
    EXPECT_EQ(decayed.size() + undecayed.size(), model->parameters().size());
    for (const auto& tensor : decayed) EXPECT_EQ(tensor.dim(), 2);
    const auto names = names_of(model, undecayed);
    EXPECT_TRUE(names.contains("tokens.weight"));
    EXPECT_EQ(names.contains("positions.weight"), family == GptFamily::kGpt2);
    EXPECT_TRUE(names.contains("norm.weight"));
    EXPECT_EQ(names_of(model, decayed).contains("head.weight"), family == GptFamily::kLlama);
    for (const auto& item : model->named_parameters()) {
      if (!item.key().ends_with("bias")) continue;
      EXPECT_TRUE(names.contains(item.key())) << item.key();
    }
  }
}

TEST(GptOptimizerTest, AStepWithoutGradientsOnlyShrinksWhatDecays) {
  Gpt model(tiny(GptFamily::kLlama));
  GptTrainOptions options;
  options.learning_rate = 0.1;
  options.weight_decay = 0.5;
  const auto optimizer = make_gpt_optimizer(options, model);
  for (auto& parameter : model->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  const auto [decayed, undecayed] = decay_groups(model);
  std::vector<torch::Tensor> before;
  for (const auto& tensor : decayed) before.push_back(tensor.detach().clone());
  for (const auto& tensor : undecayed) before.push_back(tensor.detach().clone());
  optimizer->step();
  for (size_t i = 0; i < decayed.size(); ++i)
    EXPECT_TRUE(decayed[i].allclose(before[i] * 0.95)) << i;  // 1 - 0.1 * 0.5
  for (size_t i = 0; i < undecayed.size(); ++i)
    EXPECT_TRUE(undecayed[i].equal(before[decayed.size() + i])) << i;
}

TEST(GptOptimizerTest, HasTheBetasOfTheOptions) {
  const Gpt model(tiny(GptFamily::kGpt2));
  GptTrainOptions options;
  options.beta2 = 0.98;
  const auto optimizer = make_gpt_optimizer(options, model);
  ASSERT_EQ(optimizer->param_groups().size(), 2U);
  for (const auto& group : optimizer->param_groups()) {
    const auto& adam = static_cast<const FusedAdamWOptions&>(group.options());
    EXPECT_EQ(adam.betas(), std::make_tuple(0.9, 0.98));
    EXPECT_EQ(adam.lr(), options.learning_rate);
  }
}

}  // namespace
}  // namespace lockstep::apps
