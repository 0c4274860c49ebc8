// Uses of units: several times, recomputed, in containers, under autocast, in evaluation, with an
// optimizer.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adam.h>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

TEST(ShardedUsesTest, SeveralUsesInAForwardAddUp) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    (block->forward(block->forward(x)) + block->forward(2 * x)).square().sum().backward();
  });
}

TEST(ShardedUsesTest, SeveralBackwardsAddUp) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto first = block->forward(x).square().sum();
    const auto second = block->forward(x + 1).square().sum();
    second.backward();
    first.backward();
  });
}

TEST(ShardedUsesTest, ARetainedGraphCanBeUsedAgain) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto loss = block->forward(x).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(ShardedUsesTest, ResultsCanBeChangedInPlace) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    auto y = block->forward(x);
    y.mul_(2).relu_();
    y.square().sum().backward();
  });
}

TEST(ShardedUsesTest, UnitsCanBeRecomputed) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    recompute(block, recompute(block, x)).square().sum().backward();
  });
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto twice = [&](const torch::Tensor& in) { return block->forward(block->forward(in)); };
    recompute(twice, x).square().sum().backward();
  });
}

TEST(ShardedUsesTest, ARecomputedUnitStaysGatheredForItsBackward) {
  ShardedRanks ranks(2);
  const auto make = [](UnitOptions options) {
    options.overlap = false;
    return Sharded<MlpBlock>(options);
  };
  auto first = ranks.make(make);
  auto second = ranks.make(make);
  const auto x = batch_of(2, 5);
  const auto counts_of = [&](bool together) {
    GatheredUnits::Counts counts;
    ranks.run([&](int rank) {
      auto& a = first[static_cast<size_t>(rank)];
      auto& b = second[static_cast<size_t>(rank)];
      auto& counter = gathered_units(*a);
      counter.restart();
      const auto both = [&](const torch::Tensor& in) { return b->forward(a->forward(in)); };
      const auto y = together ? recompute(both, x) : recompute(b, recompute(a, x));
      y.sum().backward();
      if (rank == 0) counts = counter.counts();
    });
    EXPECT_EQ(counts.units, 0);
    EXPECT_EQ(counts.most_units, 1);
    return counts;
  };
  // Each unit for forward, and for its recomputation and backward.
  EXPECT_EQ(counts_of(false).gathers, 4);
  // The first unit once more, since the second one computes before its backward.
  EXPECT_EQ(counts_of(true).gathers, 5);
}

struct RecomputingBlockImpl : MlpBlockImpl {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto both = [this](const torch::Tensor& in) { return MlpBlockImpl::forward(in); };
    return recompute(both, recompute(both, x));
  }
};
TORCH_MODULE(RecomputingBlock);

TEST(ShardedUsesTest, UnitsCanRecompute) {
  const auto once = [](auto& block, const torch::Tensor& x) { block->forward(x).square().sum().backward(); };
  const auto twice = [](auto& block, const torch::Tensor& x) {
    block->forward(block->forward(x)).square().sum().backward();
  };
  expect_equal_gradients<RecomputingBlock>(once);
  expect_equal_gradients<RecomputingBlock>(twice);
}

TEST(ShardedUsesTest, TakesTheBlocksPlaceInASequential) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  torch::nn::Sequential plain(torch::nn::Linear(5, 4), torch::nn::Tanh(), torch::nn::Linear(4, 5));
  plain->to(torch::kDouble);
  auto sharded = ranks.make([](const UnitOptions& options) {
    torch::nn::Sequential model(Sharded<torch::nn::Linear>(options, 5, 4), torch::nn::Tanh(),
                                Sharded<torch::nn::Linear>(options, 4, 5));
    model->to(torch::kDouble);
    return model;
  });
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto batch = batch_of(6, 5);
  plain->forward(batch).square().sum().backward();
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    sharded[self]->forward(batch.tensor_split(2)[self]).square().sum().backward();
  });
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

TEST(ShardedUsesTest, TakesTheBlocksPlaceInAModuleList) {
  torch::manual_seed(5);
  MlpBlock plain;
  torch::manual_seed(5);
  torch::nn::ModuleList layers;
  layers->push_back(Sharded<MlpBlock>(UnitOptions{}));
  const auto x = batch_of(2, 5);
  EXPECT_TRUE(layers->ptr<ShardedImpl<MlpBlock>>(0)->forward(x).equal(plain->forward(x)));
  EXPECT_EQ(layers->named_parameters().keys()[0], "0.first.weight");
}

TEST(ShardedUsesTest, AutocastComputesTheSame) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  torch::nn::Linear plain(5, 5);
  auto sharded =
      ranks.make([](const UnitOptions& options) { return Sharded<torch::nn::Linear>(options, 5, 5); });
  const auto batch = batch_of(4, 5).to(torch::kFloat);
  std::vector<torch::Tensor> results(2);
  torch::Tensor expected;
  {
    const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
    expected = plain->forward(batch);
  }
  expected.square().sum().backward();
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    {
      const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
      results[self] = sharded[self]->forward(batch.tensor_split(2)[self]);
    }
    EXPECT_EQ(results[self].scalar_type(), torch::kBFloat16);
    results[self].square().sum().backward();
  });
  EXPECT_TRUE(torch::cat(results).equal(expected));
  auto given = assembled(sharded, true);
  // Each rank's gradient is rounded to bfloat16 on its own.
  const double scale = plain->weight.grad().abs().max().item<double>();
  expect_same(given, parameters_of(plain, true), scale / 64);
}

TEST(ShardedUsesTest, EvaluationGathersAndFrees) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  ConvBlock plain;
  plain->eval();
  auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<ConvBlock>(options); });
  const auto images = torch::randn({2, 3, 4, 4}, torch::kDouble);
  const auto expected = plain->forward(images);
  ranks.run([&](int rank) {
    auto& unit = sharded[static_cast<size_t>(rank)];
    unit->eval();
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(unit->forward(images).equal(expected));
    EXPECT_EQ(gathered_units(*unit).counts().units, 0);
    EXPECT_EQ(gathered_units(*unit).counts().gathers, 1);
  });
}

TEST(ShardedUsesTest, FollowsAChangeOfDtype) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  torch::nn::Linear plain(5, 5);
  auto sharded =
      ranks.make([](const UnitOptions& options) { return Sharded<torch::nn::Linear>(options, 5, 5); });
  const auto x = batch_of(4, 5);
  ranks.run([&](int rank) {
    auto& unit = sharded[static_cast<size_t>(rank)];
    unit->forward(x.to(torch::kFloat)).sum().backward();
    unit->zero_grad();
    unit->to(torch::kDouble);
  });
  plain->to(torch::kDouble);
  const auto expected = plain->forward(x);
  expected.square().sum().backward();
  ranks.run([&](int rank) {
    auto& unit = sharded[static_cast<size_t>(rank)];
    const auto y = unit->forward(x);
    EXPECT_TRUE(y.equal(expected));
    y.square().sum().div(2).backward();
  });
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

TEST(ShardedUsesTest, GivesCopiesOfTheWholeParameters) {
  ShardedRanks ranks(kRanksOfUnits);
  torch::manual_seed(5);
  ConvBlock plain;
  auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<ConvBlock>(options); });
  ranks.run([&](int rank) {
    const auto whole = sharded[static_cast<size_t>(rank)]->whole_parameters();
    ASSERT_EQ(whole.size(), plain->named_parameters().size());
    for (const auto& item : plain->named_parameters()) {
      EXPECT_TRUE(bit_equal({whole[item.key()]}, {item.value()})) << item.key();
      EXPECT_EQ(whole[item.key()].strides(), item.value().strides());
    }
  });
}

TEST(ShardedUsesTest, AnOptimizerOfTheShardsMakesOneDevicesSteps) {
  for (const int num_ranks : {1, 2, 4}) {
    ShardedRanks ranks(num_ranks);
    torch::manual_seed(5);
    AttentionBlock plain;
    auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<AttentionBlock>(options); });
    const auto batch = torch::randn({4, 3, 8}, torch::kDouble);
    const auto train = [](auto& block, const torch::Tensor& x) {
      torch::optim::Adam adam(block->parameters(), torch::optim::AdamOptions(1e-3).weight_decay(0.1));
      for (int step = 0; step < compared_steps(20); ++step) {
        adam.zero_grad();
        block->forward(x + 0.1 * step).square().sum().backward();
        adam.step();
      }
    };
    train(plain, batch);
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      train(sharded[self], batch.tensor_split(num_ranks)[self]);
    });
    expect_same(assembled(sharded, false), parameters_of(plain, false), kExact);
  }
}

}  // namespace
}  // namespace lockstep
