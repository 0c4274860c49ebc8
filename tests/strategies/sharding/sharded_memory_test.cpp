// The memory of sharded units, as LibTorch's CPU allocator counts it, and the units that are whole at a time.
#include <gtest/gtest.h>

#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

using torch::nn::Linear;

constexpr int kRanksOfMemory = 2;
constexpr int64_t kUnits = 4;
constexpr int64_t kWidthOfLayers = 512;
/// Of one unit.
constexpr int64_t kBytes = kWidthOfLayers * (kWidthOfLayers + 1) * 4;
/// Activations of a few rows, nodes' tensors, and pieces of sums.
constexpr int64_t kSmall = kBytes / 8;

std::vector<ElementFactory> layers() {
  std::vector<ElementFactory> layers;
  for (int64_t i = 0; i < kUnits; ++i)
    layers.emplace_back([] { return Linear(kWidthOfLayers, kWidthOfLayers); });
  return layers;
}

TEST(ShardedMemoryTest, ConstructionNeedsTheShardsAndOneUnit) {
  for (const int index : {0, 1}) {
    const CountedMemory memory;
    const auto model = shard_elements(layers(), {.index = index, .size = kRanksOfMemory});
    EXPECT_LE(memory.now(), kUnits * kBytes / kRanksOfMemory + kSmall);
    EXPECT_GE(memory.now(), kUnits * kBytes / kRanksOfMemory);
    EXPECT_LE(memory.peak(), kUnits * kBytes / kRanksOfMemory + kBytes + kSmall);
    EXPECT_GE(memory.peak(), (kUnits - 1) * kBytes / kRanksOfMemory + kBytes);
  }
}

struct Usage {
  int64_t after_forward = 0;
  int64_t peak_of_forward = 0;
  int64_t peak_of_backward = 0;
  int64_t after_backward = 0;
  GatheredUnits::Counts counts;
};

/// The memory that a forward and a backward allocate, as a mean over the ranks: one rank's thread may free
/// what another one has allocated. Gradients of shards have their memory already.
Usage usage_of(int num_ranks, const UnitOptions& options = {}, const UnitPolicy& policy = {}) {
  ShardedRanks ranks(num_ranks);
  auto models = ranks.make([&](UnitOptions own) {
    own.keep_until_backward = options.keep_until_backward;
    return shard_elements(layers(), own, policy);
  });
  for (const auto& model : models) {
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  const auto x = torch::randn({4, kWidthOfLayers});
  std::vector<torch::Tensor> results(models.size());
  Usage usage;
  CountedMemory memory;
  ranks.run([&](int rank) {
    const CountedMemory own(memory);
    results[static_cast<size_t>(rank)] = models[static_cast<size_t>(rank)]->forward(x);
  });
  usage.after_forward = memory.now() / num_ranks;
  usage.peak_of_forward = memory.peak() / num_ranks;
  memory.begin_peak();
  ranks.run([&](int rank) {
    const CountedMemory own(memory);
    results[static_cast<size_t>(rank)].sum().backward();
  });
  usage.peak_of_backward = memory.peak() / num_ranks;
  usage.after_backward = memory.now() / num_ranks;
  usage.counts = gathered_units(*models[0]).counts();
  return usage;
}

TEST(ShardedMemoryTest, ForwardKeepsNoWeightsAndGathersOneUnitAtATime) {
  const auto usage = usage_of(kRanksOfMemory);
  EXPECT_LE(usage.after_forward, kSmall);
  // Once for all ranks.
  EXPECT_GE(usage.peak_of_forward, kBytes / kRanksOfMemory);
  EXPECT_LE(usage.peak_of_forward, kBytes / kRanksOfMemory + kSmall);
}

TEST(ShardedMemoryTest, BackwardNeedsOneUnitsWeightsAndEachRanksGradients) {
  const auto usage = usage_of(kRanksOfMemory);
  EXPECT_GE(usage.peak_of_backward, 2 * kBytes / kRanksOfMemory);
  // Gradients that backward has made, and the piece of memory in which they are summed.
  EXPECT_LE(usage.peak_of_backward, 2 * kBytes + kSmall);
  EXPECT_LE(usage.after_backward, kSmall);
}

TEST(ShardedMemoryTest, CountsOneUnitThatIsGatheredTwice) {
  const auto counts = usage_of(kRanksOfMemory).counts;
  EXPECT_EQ(counts.units, 0);
  EXPECT_EQ(counts.most_units, 1);
  EXPECT_EQ(counts.bytes, 0);
  EXPECT_GE(counts.most_bytes, kBytes / kRanksOfMemory);
  EXPECT_LE(counts.most_bytes, kBytes / kRanksOfMemory + 1024);
  EXPECT_EQ(counts.gathers, 2 * kUnits);
  EXPECT_EQ(counts.reduce_scatters, kUnits);
}

TEST(ShardedMemoryTest, UnitsThatAreKeptAreGatheredOnce) {
  const auto usage = usage_of(kRanksOfMemory, {.keep_until_backward = true});
  EXPECT_GE(usage.after_forward, kUnits * kBytes / kRanksOfMemory);
  EXPECT_LE(usage.after_forward, kUnits * kBytes / kRanksOfMemory + kSmall);
  EXPECT_LE(usage.after_backward, kSmall);
  EXPECT_EQ(usage.counts.gathers, kUnits);
  EXPECT_EQ(usage.counts.most_units, kUnits);
  EXPECT_EQ(usage.counts.units, 0);
}

TEST(ShardedMemoryTest, ElementsJoinUntilAUnitHasTheBytes) {
  const auto usage = usage_of(kRanksOfMemory, {}, {.min_unit_bytes = kBytes + 1});
  EXPECT_EQ(usage.counts.gathers, 2 * kUnits / 2);
  EXPECT_GE(usage.counts.most_bytes, 2 * kBytes / kRanksOfMemory);
  EXPECT_LE(usage.peak_of_forward, 2 * kBytes / kRanksOfMemory + kSmall);
}

TEST(ShardedMemoryTest, AllRanksOfAProcessHaveTheSameWholeParameters) {
  ShardedRanks ranks(4);
  struct Reads : torch::nn::Module {
    Reads() : linear(register_module("linear", Linear(kWidthOfLayers, kWidthOfLayers))) {}
    torch::Tensor forward(const torch::Tensor& x) {
      memory.push_back(linear->weight.const_data_ptr());
      return linear->forward(x);
    }
    Linear linear;
    std::vector<const void*> memory;
  };
  std::vector<std::shared_ptr<Reads>> blocks;
  auto models = ranks.make([&](const UnitOptions& options) {
    blocks.push_back(std::make_shared<Reads>());
    return std::make_shared<ShardedImpl<torch::nn::ModuleHolder<Reads>>>(options, blocks.back());
  });
  for (const bool is_grad_enabled : {true, false}) {
    ranks.run([&](int rank) {
      const torch::AutoGradMode mode(is_grad_enabled);
      models[static_cast<size_t>(rank)]->forward(torch::randn({4, kWidthOfLayers}));
    });
  }
  for (const auto& block : blocks) {
    ASSERT_EQ(block->memory.size(), 2U);
    EXPECT_EQ(block->memory, blocks[0]->memory);
  }
}

TEST(ShardedMemoryTest, AProcessNeedsTwoUnitsHoweverManyRanksItHas) {
  for (const int num_ranks : {2, 4}) {
    ShardedRanks ranks(num_ranks);
    auto models = ranks.make([](const UnitOptions& options) { return shard_elements(layers(), options); });
    const auto x = torch::randn({4, kWidthOfLayers});
    const auto step = [&](int rank, CountedMemory* memory) {
      std::optional<CountedMemory> own;
      if (memory != nullptr) own.emplace(*memory);
      const torch::NoGradGuard no_grad;
      models[static_cast<size_t>(rank)]->forward(x);
    };
    ranks.run([&](int rank) { step(rank, nullptr); });  // learns the order in which units are used
    CountedMemory memory;
    ranks.run([&](int rank) { step(rank, &memory); });
    EXPECT_EQ(gathered_units(*models[0]).counts().most_units, 2);
    EXPECT_GE(memory.peak(), kBytes);
    EXPECT_LE(memory.peak(), 2 * kBytes + num_ranks * kSmall);
    EXPECT_EQ(memory.now(), 0);
  }
}

TEST(ShardedMemoryTest, OneRankKeepsItsParametersWithoutACopy) {
  const auto usage = usage_of(1);
  EXPECT_LE(usage.peak_of_forward, kSmall);
  EXPECT_EQ(usage.counts.gathers, 0);
}

TEST(ShardedMemoryTest, AGraphThatIsDroppedFreesTheUnitsThatItKept) {
  ShardedRanks ranks(kRanksOfMemory);
  auto models = ranks.make([](UnitOptions options) {
    options.keep_until_backward = true;
    return shard_elements(layers(), options);
  });
  ranks.run([&](int rank) {
    auto& model = models[static_cast<size_t>(rank)];
    auto y = model->forward(torch::randn({4, kWidthOfLayers}));
    EXPECT_EQ(gathered_units(*model).counts().units, kUnits);
    y.reset();
    EXPECT_EQ(gathered_units(*model).counts().units, 0);
  });
}

TEST(ShardedMemoryTest, AUnitAndItsGraphLeaveNothingBehind) {
  const CountedMemory memory;
  {
    auto unit = std::make_shared<ShardedImpl<Linear>>(UnitOptions{}, kWidthOfLayers, kWidthOfLayers);
    const auto y = unit->forward(torch::randn({4, kWidthOfLayers}));
    unit.reset();
    y.sum().backward();  // The graph holds what it needs.
  }
  {
    const auto unit =
        Sharded<Linear>(UnitOptions{}, kWidthOfLayers, kWidthOfLayers)(torch::randn({4, kWidthOfLayers}));
  }
  EXPECT_EQ(memory.now(), 0);
}

}  // namespace
}  // namespace lockstep
