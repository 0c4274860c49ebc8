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
  AveragedWeights average(objects);
  weight.fill_(3);
  average.update(objects, 0.5, AveragedBuffers::kAverage);
  for (int time = 0; time < 2; ++time) {
    average.swap(objects);
    EXPECT_TRUE(weight.eq(2).all().item<bool>()) << weight;
    average.swap(objects);
    EXPECT_TRUE(weight.eq(3).all().item<bool>()) << weight;
  }
}

}  // namespace
}  // namespace lockstep
