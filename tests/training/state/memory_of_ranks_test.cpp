// The memory of each rank at every stage, against bytes counted by hand and against the formula.
#include "lockstep/training/state/memory_of_ranks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/state/memory_by_part.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kLayers = 6;
/// Elements and bytes of a layer's weight and bias in float32.
constexpr int64_t kElements = kWidth * kWidth + kWidth;
constexpr int64_t kLayerBytes = kElements * 4;
constexpr int64_t kBytes = kLayers * kLayerBytes;

/// Gives way to padding: 64 bytes for each rank's part of a bucket or unit.
constexpr double kPadding = 0.01;

using Parameters = std::vector<torch::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&)>;

std::unique_ptr<torch::optim::Optimizer> adam(const Parameters& parameters) {
  return std::make_unique<FusedAdam>(parameters, FusedAdamOptions(1e-3));
}

struct Case {
  int replicas = 1;
  Mesh mesh = {};
  int stage = 0;
  bool keeps_units = false;

  StrategyOptions options() const {
    return {.intra_op_threads = 1,
            .seed = 1,
            .mesh = mesh,
            .sharding = {.stage = stage < 3 ? stage : 0},  // units are sharded by themselves
            // Each layer is a bucket.
            .buckets = {.first_bucket_bytes = kLayerBytes, .bucket_bytes = kLayerBytes}};
  }
};

/// An MLP; in stage 3 each layer is a unit.
std::shared_ptr<torch::nn::Module> make_mlp(ReplicaContext& replica, const Case& layout) {
  // Workers of a test are threads of one process, and must not draw from its generator.
  const auto generator = at::detail::createCPUGenerator(1);
  const RankRandom apart(generator);
  std::vector<ElementFactory> layers;
  for (int64_t i = 0; i < kLayers; ++i) layers.emplace_back([] { return torch::nn::Linear(kWidth, kWidth); });
  if (layout.stage == 3) {
    auto options = along(replica.axis(layout.mesh.has("shard") ? "shard" : "data"));
    options.keep_until_backward = layout.keeps_units;
    return shard_elements(layers, options).ptr();
  }
  torch::nn::Sequential model;
  for (const auto& layer : layers) model->push_back(layer.make());
  return model.ptr();
}

torch::Tensor forward_of(torch::nn::Module& model, const torch::Tensor& x) {
  if (auto* units = dynamic_cast<ShardedSequentialImpl*>(&model)) return units->forward(x);
  return dynamic_cast<torch::nn::SequentialImpl&>(model).forward(x);
}

struct Measured {
  std::vector<RankMemory> ranks;
  MemoryRecord all;
};

/// Makes two steps, and measures.
Measured memory_after(Strategy& strategy, const Case& layout, const MakeOptimizer& make_optimizer = adam) {
  auto models = strategy.scope([&](ReplicaContext& replica) { return make_mlp(replica, layout); });
  auto optimizers =
      strategy.scope([&](ReplicaContext& replica) { return make_optimizer(models[replica]->parameters()); });
  const auto step = [](ReplicaContext& replica, std::shared_ptr<torch::nn::Module>& model,
                       std::unique_ptr<torch::optim::Optimizer>& optimizer) {
    optimizer->zero_grad();
    forward_of(*model, torch::ones({2, kWidth})).sum().backward();
    replica.apply_gradients(*optimizer);
  };
  for (int i = 0; i < 2; ++i) strategy.run(step, models, optimizers);
  std::vector<torch::optim::Optimizer*> pointers;
  for (auto& optimizer : optimizers.local_values()) pointers.push_back(optimizer.get());
  const auto modules = module_pointers(models.local_values());
  return {memory_of_ranks(strategy, modules, pointers), memory_by_part(strategy, modules, pointers)};
}

Measured memory_after(const Case& layout, const MakeOptimizer& make_optimizer = adam) {
  MirroredStrategy strategy(cpu_devices(layout.replicas), layout.options());
  return memory_after(strategy, layout, make_optimizer);
}

/// Measures on two workers of one rank.
std::vector<Measured> memory_of_workers(const Case& layout) {
  std::vector<Measured> by_worker(2);
  const auto errors = run_strategies(
      {1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        by_worker[static_cast<size_t>(strategy.first_local_replica())] = memory_after(strategy, layout);
      },
      [&](int, WorkerSetUp& worker) { worker.options = layout.options(); });
  expect_no_worker_failed(errors);
  return by_worker;
}

void expect_near(int64_t measured, int64_t expected, const std::string& what) {
  EXPECT_GE(measured, expected) << what;
  EXPECT_LE(static_cast<double>(measured), std::ceil(static_cast<double>(expected) * (1 + kPadding))) << what;
}

/// Compares all parts, of which `expected` was counted by hand, and the prediction with `expected`.
void expect_parts(const std::vector<RankMemory>& ranks, const MemoryParts& expected, size_t num_ranks) {
  ASSERT_EQ(ranks.size(), num_ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string rank = "rank " + std::to_string(i);
    const auto& [id, measured, predicted] = ranks[i];
    EXPECT_EQ(id, static_cast<int64_t>(i));
    expect_near(measured.parameters, expected.parameters, rank + ", parameters");
    expect_near(measured.gradients, expected.gradients, rank + ", gradients");
    // Ranks keep state of their elements alone, and their last part may have padding.
    EXPECT_NEAR(static_cast<double>(measured.optimizer_state.value()),
                static_cast<double>(*expected.optimizer_state),
                static_cast<double>(*expected.optimizer_state) * kPadding)
        << rank;
    expect_near(measured.gathered_units, expected.gathered_units, rank + ", gathered units");
    ASSERT_TRUE(predicted.has_value());
    EXPECT_EQ(predicted->parameters, expected.parameters) << rank;
    EXPECT_EQ(predicted->gradients, expected.gradients) << rank;
    EXPECT_EQ(predicted->optimizer_state, expected.optimizer_state) << rank;
    EXPECT_EQ(predicted->buckets, expected.buckets) << rank;
    EXPECT_EQ(predicted->gathered_units, expected.gathered_units) << rank;
  }
}

TEST(MemoryOfRanksTest, WithoutShardingEachRankHoldsEverything) {
  for (const int replicas : {1, 2, 4}) {
    const auto memory = memory_after({.replicas = replicas});
    const MemoryParts expected{.parameters = kBytes, .gradients = kBytes, .optimizer_state = 2 * kBytes};
    expect_parts(memory.ranks, expected, static_cast<size_t>(replicas));
    for (const auto& rank : memory.ranks) EXPECT_EQ(rank.measured.buckets, 0);
  }
}

TEST(MemoryOfRanksTest, StageOneDividesTheState) {
  for (const int replicas : {2, 4}) {
    const auto memory = memory_after({.replicas = replicas, .stage = 1});
    const MemoryParts expected{
        .parameters = kBytes, .gradients = kBytes, .optimizer_state = 2 * kBytes / replicas};
    expect_parts(memory.ranks, expected, static_cast<size_t>(replicas));
  }
}

TEST(MemoryOfRanksTest, StageTwoDividesTheGradientsAndCountsTheMostOfTheBuckets) {
  for (const int replicas : {2, 4}) {
    const auto memory = memory_after({.replicas = replicas, .stage = 2});
    const MemoryParts expected{.parameters = kBytes,
                               .gradients = kBytes / replicas,
                               .optimizer_state = 2 * kBytes / replicas,
                               .buckets = 2 * kLayerBytes};
    expect_parts(memory.ranks, expected, static_cast<size_t>(replicas));
    for (const auto& rank : memory.ranks) {
      // One fills at least, and all do if sums are slow.
      EXPECT_GE(rank.measured.buckets, kLayerBytes);
      EXPECT_LE(static_cast<double>(rank.measured.buckets), static_cast<double>(kBytes) * (1 + kPadding));
    }
  }
}

TEST(MemoryOfRanksTest, UnitsAreDividedAndTwoAreGatheredAtATimeForAllRanksOfTheProcess) {
  for (const int replicas : {2, 4}) {
    const auto memory = memory_after({.replicas = replicas, .stage = 3});
    const MemoryParts expected{.parameters = kBytes / replicas,
                               .gradients = kBytes / replicas,
                               .optimizer_state = 2 * kBytes / replicas,
                               .gathered_units = 2 * kLayerBytes / replicas};
    expect_parts(memory.ranks, expected, static_cast<size_t>(replicas));
  }
}

TEST(MemoryOfRanksTest, UnitsThatAreKeptCountAtOnce) {
  const auto memory = memory_after({.replicas = 2, .stage = 3, .keeps_units = true});
  EXPECT_EQ(memory.ranks[0].predicted.value().gathered_units, kBytes / 2);
  expect_near(memory.ranks[0].measured.gathered_units, kBytes / 2, "gathered units");
}

TEST(MemoryOfRanksTest, WorkersShareNoUnits) {
  const Case layout{.replicas = 2, .stage = 3};
  const auto by_worker = memory_of_workers(layout);
  for (const auto& [ranks, all] : by_worker) {
    ASSERT_EQ(ranks.size(), 1U);
    EXPECT_EQ(ranks[0].predicted.value().gathered_units, 2 * kLayerBytes);
    expect_near(ranks[0].measured.gathered_units, 2 * kLayerBytes, "gathered units");
  }
}

TEST(MemoryOfRanksTest, OneRankWithUnitsGathersNothing) {
  const auto memory = memory_after({.replicas = 1, .stage = 3});
  const MemoryParts expected{.parameters = kBytes, .gradients = kBytes, .optimizer_state = 2 * kBytes};
  expect_parts(memory.ranks, expected, 1);
}

TEST(MemoryOfRanksTest, OnAMeshOnlyTheAxisOfTheShardingDivides) {
  const Mesh mesh{{"data", 2}, {"shard", 2}};
  for (const int stage : {1, 2, 3}) {
    const auto memory = memory_after({.replicas = 4, .mesh = mesh, .stage = stage});
    ASSERT_EQ(memory.ranks.size(), 4U);
    for (const auto& rank : memory.ranks) {
      EXPECT_NEAR(static_cast<double>(rank.measured.optimizer_state.value()), kBytes, kBytes * kPadding)
          << stage;
      EXPECT_EQ(rank.predicted.value().optimizer_state, kBytes) << stage;
    }
  }
}

TEST(MemoryOfRanksTest, WorkersMeasureTheirOwnRanks) {
  const Case layout{.replicas = 2, .stage = 2};
  const auto by_worker = memory_of_workers(layout);
  for (size_t worker = 0; worker < by_worker.size(); ++worker) {
    ASSERT_EQ(by_worker[worker].ranks.size(), 1U);
    const auto& rank = by_worker[worker].ranks[0];
    EXPECT_EQ(rank.rank, static_cast<int64_t>(worker));
    expect_near(rank.measured.gradients, kBytes / 2, "gradients");
    EXPECT_EQ(rank.predicted.value().gradients, kBytes / 2);
    EXPECT_EQ(rank.predicted.value().parameters, kBytes);
  }
}

TEST(MemoryOfRanksTest, KnowsHowMuchStateEachOptimizerKeeps) {
  struct Kind {
    std::string name;
    int64_t states = 0;
    MakeOptimizer make;
  };
  const auto as_made = [](auto make) {
    return [make](const Parameters& parameters) -> std::unique_ptr<torch::optim::Optimizer> {
      using Optimizer = std::decay_t<decltype(make(parameters))>;
      return std::make_unique<Optimizer>(make(parameters));
    };
  };
  namespace optim = torch::optim;
  const std::vector<Kind> kinds{
      {"SGD", 0, as_made([](const Parameters& p) { return optim::SGD(p, optim::SGDOptions(0.1)); })},
      {"SGD with momentum", 1,
       as_made([](const Parameters& p) { return optim::SGD(p, optim::SGDOptions(0.1).momentum(0.9)); })},
      {"FusedSgd with momentum", 1,
       as_made([](const Parameters& p) { return FusedSgd(p, FusedSgdOptions(0.1).momentum(0.9)); })},
      {"Adagrad", 1,
       as_made([](const Parameters& p) { return optim::Adagrad(p, optim::AdagradOptions(0.1)); })},
      {"AdamW", 2, as_made([](const Parameters& p) { return FusedAdamW(p, FusedAdamWOptions(0.1)); })},
      {"Adam with AMSGrad", 3,
       as_made([](const Parameters& p) { return FusedAdam(p, FusedAdamOptions(0.1).amsgrad(true)); })}};
  for (const auto& [name, states, make] : kinds) {
    for (const int stage : {0, 1, 2}) {
      const auto memory = memory_after({.replicas = 2, .stage = stage}, make);
      const int64_t expected = states * kBytes / (stage == 0 ? 1 : 2);
      EXPECT_EQ(memory.ranks[0].predicted.value().optimizer_state, expected) << name << " " << stage;
      EXPECT_NEAR(static_cast<double>(memory.ranks[0].measured.optimizer_state.value()),
                  static_cast<double>(expected), static_cast<double>(expected) * kPadding)
          << name << " " << stage;
    }
  }
}

TEST(MemoryOfRanksTest, StateOfOtherOptimizersIsNotKnown) {
  const auto memory = memory_after({.replicas = 1}, [](const Parameters& parameters) {
    return std::make_unique<torch::optim::RMSprop>(parameters, 0.1);
  });
  EXPECT_FALSE(memory.ranks[0].measured.optimizer_state.has_value());
  EXPECT_FALSE(memory.ranks[0].predicted.value().optimizer_state.has_value());
  EXPECT_EQ(memory.ranks[0].measured.parameters, kBytes);
}

TEST(MemoryOfRanksTest, TheRanksPartsAreAllOfTheProcess) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto memory = memory_after({.replicas = 2, .stage = stage});
    int64_t parameters = 0, state = 0, gradients = 0;
    for (const auto& rank : memory.ranks) {
      parameters += rank.measured.parameters;
      gradients += rank.measured.gradients;
      state += rank.measured.optimizer_state.value();
    }
    EXPECT_EQ(memory.all.parameters, parameters) << stage;
    EXPECT_EQ(memory.all.gradients + memory.all.communication_buckets, gradients) << stage;
    EXPECT_EQ(memory.all.optimizer_state, state) << stage;
  }
}

struct TableAndLayerImpl : public torch::nn::Module {
  TableAndLayerImpl() {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5000, 8).sparse(true)));
    layer = register_module("layer", torch::nn::Linear(8, 1));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(TableAndLayer);

TEST(MemoryOfRanks, ExpectsNoGradientsOfWholeTablesThatAreSummedByRows) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .seed = 1});
  auto models = strategy.scope([](ReplicaContext&) { return TableAndLayer(); });
  auto optimizers = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(models[replica]->parameters(), 0.1);
  });
  const auto predicted = predict_memory(memory_layout(strategy, *models.primary(), *optimizers.primary()));
  EXPECT_EQ(predicted.gradients, 4 * (8 + 1));
  EXPECT_EQ(predicted.parameters, 4 * (5000 * 8 + 8 + 1));
}

}  // namespace
}  // namespace lockstep
