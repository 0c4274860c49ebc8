// Bytes of small models, counted by hand.
#include "lockstep/training/state/memory_by_part.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/tanh_net.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

/// 6 x 5 weights, 5 biases, 5 x 3 weights and 3 biases in float64.
constexpr int64_t kTanhNetBytes = (30 + 5 + 15 + 3) * 8;

/// Returns the memory after a step on the strategy's replicas.
template <typename Model, typename Optimizer>
MemoryRecord memory_after_step(Strategy& strategy, const std::function<Model()>& make_model,
                               const std::function<Optimizer(std::vector<torch::Tensor>)>& make_optimizer) {
  auto models = strategy.scope([&](ReplicaContext&) { return make_model(); });
  auto optimizers =
      strategy.scope([&](ReplicaContext& replica) { return make_optimizer(models[replica]->parameters()); });
  const auto step = [](ReplicaContext& replica, Model& model, Optimizer& optimizer) {
    optimizer.zero_grad();
    model->forward(torch::ones({4, 6}, torch::kDouble)).sum().backward();
    replica.apply_gradients(optimizer);
  };
  strategy.run(step, models, optimizers);
  std::vector<torch::optim::Optimizer*> pointers;
  for (auto& optimizer : optimizers.local_values()) pointers.push_back(&optimizer);
  return memory_by_part(strategy, module_pointers(models.local_values()), pointers);
}

template <typename Optimizer>
MemoryRecord memory_of(Strategy& strategy,
                       const std::function<Optimizer(std::vector<torch::Tensor>)>& make_optimizer) {
  return memory_after_step<TanhNet, Optimizer>(
      strategy, [] { return TanhNet(); }, make_optimizer);
}

torch::optim::SGD momentum(std::vector<torch::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
}

TEST(MemoryByPartTest, CountsEachByteOfOneReplica) {
  DefaultStrategy strategy;
  const auto memory = memory_of<torch::optim::SGD>(strategy, momentum);
  EXPECT_EQ(memory.parameters, kTanhNetBytes);
  EXPECT_EQ(memory.gradients, kTanhNetBytes);
  EXPECT_EQ(memory.optimizer_state, kTanhNetBytes);
  EXPECT_EQ(memory.communication_buckets, 0);
  EXPECT_EQ(memory.buffers, 0);
  EXPECT_FALSE(memory.activations || memory.peak);
}

TEST(MemoryByPartTest, AdamKeepsTwoMomentsOfEachParameter) {
  DefaultStrategy strategy;
  const auto adam = [](const auto& parameters) { return torch::optim::Adam(parameters, 0.1); };
  EXPECT_EQ(memory_of<torch::optim::Adam>(strategy, adam).optimizer_state, 2 * kTanhNetBytes);
  const auto fused = [](const auto& parameters) { return FusedAdam(parameters, 0.1); };
  EXPECT_EQ(memory_of<FusedAdam>(strategy, fused).optimizer_state, 2 * kTanhNetBytes);
}

TEST(MemoryByPartTest, SgdWithoutMomentumKeepsNothing) {
  DefaultStrategy strategy;
  const auto plain = [](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); };
  EXPECT_EQ(memory_of<torch::optim::SGD>(strategy, plain).optimizer_state, 0);
}

TEST(MemoryByPartTest, DoesNotKnowTheStateOfOtherOptimizers) {
  DefaultStrategy strategy;
  const auto other = [](const auto& parameters) { return torch::optim::RMSprop(parameters, 0.1); };
  const auto memory = memory_of<torch::optim::RMSprop>(strategy, other);
  EXPECT_FALSE(memory.optimizer_state.has_value());
  EXPECT_EQ(memory.parameters, kTanhNetBytes);
}

TEST(MemoryByPartTest, GradientsOfSeveralReplicasAreInBucketsAndCountOnce) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"}, {.intra_op_threads = 1});
  const auto memory = memory_of<torch::optim::SGD>(strategy, momentum);
  EXPECT_EQ(memory.parameters, 2 * kTanhNetBytes);
  EXPECT_EQ(memory.communication_buckets, 2 * kTanhNetBytes);
  EXPECT_EQ(memory.gradients, 0);
  EXPECT_EQ(memory.optimizer_state, 2 * kTanhNetBytes);
}

/// Multiplies by one weight twice, under two names.
struct TiedNetImpl : public torch::nn::Module {
  TiedNetImpl() {
    first = register_parameter("first", torch::ones({6, 6}, torch::kDouble));
    second = register_parameter("second", first);
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    norm->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm(x.matmul(first)).matmul(second); }

  torch::Tensor first, second;
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(TiedNet);

TEST(MemoryByPartTest, CountsSharedParametersOnceAndBuffersApart) {
  DefaultStrategy strategy;
  const auto of_distinct = [](std::vector<torch::Tensor> parameters) {
    parameters.erase(parameters.begin() + 1);
    return momentum(std::move(parameters));
  };
  const auto memory = memory_after_step<TiedNet, torch::optim::SGD>(
      strategy, [] { return TiedNet(); }, of_distinct);
  EXPECT_EQ(memory.parameters, (36 + 6 + 6) * 8);
  EXPECT_EQ(memory.gradients, (36 + 6 + 6) * 8);
  EXPECT_EQ(memory.buffers, (6 + 6) * 8 + 8);  // mean, variance, and an int64 count of batches
}

TEST(MemoryByPartTest, PeakOnTheCpuIsTheProcessesAndGrowsWithIt) {
  constexpr int64_t kMuch = int64_t{64} << 20;
  DefaultStrategy strategy;
  MemoryRecord before;
  add_peak(before, strategy);
  ASSERT_TRUE(before.peak.has_value());
  EXPECT_TRUE(before.is_of_process);
  // More than was ever resident, since pages that are free may be used again.
  const auto tensor = torch::ones({*before.peak + kMuch}, torch::kUInt8);
  MemoryRecord after;
  add_peak(after, strategy);
  EXPECT_GE(*after.peak, *before.peak + kMuch);
}

}  // namespace
}  // namespace lockstep
