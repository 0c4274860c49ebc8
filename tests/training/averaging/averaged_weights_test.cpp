#include "lockstep/training/averaging/internal/averaged_weights.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {
namespace {

/// One parameter with two names.
struct TiedWeightImpl : torch::nn::Module {
  TiedWeightImpl() {
    weight = register_parameter("weight", torch::ones({2}));
    register_parameter("same", weight);
  }
  torch::Tensor weight;
};

TEST(AveragedWeightsTest, ExchangesTiedWeightsOnce) {
  DefaultStrategy strategy;
  auto model = strategy.scope([](ReplicaContext&) { return std::make_shared<TiedWeightImpl>(); });
  const FitState::Objects objects{
      .strategy = strategy, .modules = {model.primary()}, .optimizers = {}, .scalers = {}};
  const torch::NoGradGuard no_grad;
  const torch::Tensor weight = model.primary()->weight;
  AveragedWeights average;
  average.update(objects, 0.25, AveragedBuffers::kAverage);  // the first copies the model, of ones
  weight.fill_(3);
  average.update(objects, 0.5, AveragedBuffers::kAverage);
  for (int time = 0; time < 2; ++time) {
    EXPECT_TRUE(average.put_into_model(objects));
    EXPECT_TRUE(weight.eq(2).all().item<bool>()) << weight;
    EXPECT_FALSE(average.put_into_model(objects)) << "is there already";
    EXPECT_TRUE(weight.eq(2).all().item<bool>()) << weight;
    for (int again = 0; again < 2; ++again) {
      average.take_out_of_model(objects);
      EXPECT_TRUE(weight.eq(3).all().item<bool>()) << weight;
    }
  }
}

TEST(AveragedWeightsTest, LeavesTheModelAloneBeforeItsFirstUpdate) {
  DefaultStrategy strategy;
  auto model = strategy.scope([](ReplicaContext&) { return std::make_shared<TiedWeightImpl>(); });
  const FitState::Objects objects{
      .strategy = strategy, .modules = {model.primary()}, .optimizers = {}, .scalers = {}};
  const torch::Tensor weight = model.primary()->weight;
  AveragedWeights average;
  EXPECT_FALSE(average.put_into_model(objects));
  EXPECT_TRUE(weight.eq(1).all().item<bool>()) << weight;
  EXPECT_EQ(average.save(objects).get_if<StateValue::Dict>(), nullptr);
  average.update(objects, 1, AveragedBuffers::kAverage);
  EXPECT_NE(average.save(objects).get_if<StateValue::Dict>(), nullptr);
  average.clear();
  EXPECT_FALSE(average.put_into_model(objects));
}

TEST(AveragedWeightsTest, LeavesTheModelWhenItIsSaved) {
  DefaultStrategy strategy;
  auto model = strategy.scope([](ReplicaContext&) { return std::make_shared<TiedWeightImpl>(); });
  const FitState::Objects objects{
      .strategy = strategy, .modules = {model.primary()}, .optimizers = {}, .scalers = {}};
  const torch::NoGradGuard no_grad;
  const torch::Tensor weight = model.primary()->weight;
  AveragedWeights average;
  average.update(objects, 1, AveragedBuffers::kAverage);
  weight.fill_(5);
  average.put_into_model(objects);
  const StateValue saved = average.save(objects);
  EXPECT_TRUE(weight.eq(5).all().item<bool>()) << weight;
  average.clear();
  average.load(objects, StateView(saved, "saved"));
  EXPECT_TRUE(average.put_into_model(objects));
  EXPECT_TRUE(weight.eq(1).all().item<bool>()) << weight;
}

}  // namespace
}  // namespace lockstep
