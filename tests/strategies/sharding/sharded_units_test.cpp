// What units may contain, and how they may be used: several uses, frozen and tied parameters, other dtypes,
// units in units, recomputation, autocast.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>

#include <tuple>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

constexpr int kRanksOfUnits = 3;

torch::Tensor batch_of(int64_t rows, int64_t width) {
  torch::manual_seed(11);
  return torch::randn({rows, width}, torch::kDouble);
}

/// Runs `step` on the plain block with all rows, and on each rank's unit with its own rows, and compares the
/// sums of the gradients.
template <typename Block, typename Step, typename... Args>
void expect_equal_gradients(const Step& step, const Args&... args) {
  ShardedRanks ranks(kRanksOfUnits);
  torch::manual_seed(5);
  Block plain(args...);
  auto sharded = ranks.make([&](const UnitOptions& options) { return Sharded<Block>(options, args...); });
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto batch = batch_of(7, 5);
  step(plain, batch);
  const auto parts = batch.tensor_split(kRanksOfUnits);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    step(sharded[self], parts[self]);
    EXPECT_EQ(gathered_units(*sharded[self]).counts().units, 0);
  });
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

TEST(ShardedUnitsTest, SeveralUsesInAForwardAddUp) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    (block->forward(block->forward(x)) + block->forward(2 * x)).square().sum().backward();
  });
}

TEST(ShardedUnitsTest, SeveralBackwardsAddUp) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto first = block->forward(x).square().sum();
    const auto second = block->forward(x + 1).square().sum();
    second.backward();
    first.backward();
  });
}

TEST(ShardedUnitsTest, ARetainedGraphCanBeUsedAgain) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto loss = block->forward(x).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

struct FrozenPartImpl : MlpBlockImpl {
  FrozenPartImpl() { first->weight.set_requires_grad(false); }
};
TORCH_MODULE(FrozenPart);

TEST(ShardedUnitsTest, FrozenParametersGetNoGradient) {
  expect_equal_gradients<FrozenPart>([](auto& block, const torch::Tensor& x) {
    block->forward(x).square().sum().backward();
    for (const auto& item : block->named_parameters())
      EXPECT_EQ(item.value().grad().defined(), item.key() != "first.weight") << item.key();
  });
}

TEST(ShardedUnitsTest, ParametersCanBeFrozenAfterTheyAreCut) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    block->named_parameters()["second.weight"].set_requires_grad(false);
    block->forward(x).square().sum().backward();
    EXPECT_FALSE(block->named_parameters()["second.weight"].grad().defined());
    EXPECT_TRUE(block->named_parameters()["second.bias"].grad().defined());
  });
}

struct FrozenBlockImpl : MlpBlockImpl {
  FrozenBlockImpl() {
    for (auto& parameter : parameters()) parameter.set_requires_grad(false);
  }
};
TORCH_MODULE(FrozenBlock);

TEST(ShardedUnitsTest, AFrozenUnitIsFreedWhenItsInputsHaveTheirGradients) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  FrozenBlock plain;
  auto sharded = ranks.make([&](const UnitOptions& options) { return Sharded<FrozenBlock>(options); });
  const auto batch = batch_of(4, 5);
  const auto expected = batch.clone().requires_grad_();
  plain->forward(plain->forward(expected)).square().sum().backward();
  ranks.run([&](int rank) {
    auto& unit = sharded[static_cast<size_t>(rank)];
    const auto x = batch.clone().requires_grad_();
    const auto middle = unit->forward(x);
    const auto y = unit->forward(middle * 1);
    middle.register_hook([&](const torch::Tensor& gradient) {
      EXPECT_EQ(gathered_units(*unit).counts().units, 0);
      return gradient;
    });
    y.square().sum().backward();
    EXPECT_LE(largest_difference({x.grad()}, {expected.grad()}), kExact);
    EXPECT_EQ(gathered_units(*unit).counts().gathers, 4);
  });
}

/// A weight under two names.
struct SharedWeightImpl : torch::nn::Module {
  SharedWeightImpl() {
    weight = register_parameter("weight", torch::randn({5, 5}, torch::kDouble));
    same = register_parameter("same", weight);
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(weight)).matmul(same.t()); }

  torch::Tensor weight, same;
};
TORCH_MODULE(SharedWeight);

TEST(ShardedUnitsTest, TiedParametersStayTied) {
  expect_equal_gradients<SharedWeight>([](auto& block, const torch::Tensor& x) {
    block->forward(x).square().sum().backward();
    EXPECT_TRUE(block->named_parameters()["weight"].is_same(block->named_parameters()["same"]));
  });
}

/// Parameters in float32 and float64, one without elements, and one that is not used.
struct MixedBlockImpl : torch::nn::Module {
  MixedBlockImpl() {
    wide = register_parameter("wide", torch::randn({5, 5}, torch::kDouble));
    narrow = register_parameter("narrow", torch::randn({3}, torch::kFloat));
    scale = register_parameter("scale", torch::tensor(1.5, torch::kDouble));
    empty = register_parameter("empty", torch::zeros({0, 4}, torch::kDouble));
    unused = register_parameter("unused", torch::randn({4}, torch::kDouble));
    complex = register_parameter("complex", torch::randn({5}, torch::kComplexDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x.matmul(wide) * scale * narrow.to(torch::kDouble).sum() + empty.sum() + at::real(x * complex);
  }

  torch::Tensor wide, narrow, scale, empty, unused, complex;
};
TORCH_MODULE(MixedBlock);

TEST(ShardedUnitsTest, TakesParametersOfSeveralDtypesAndAnySize) {
  ShardedRanks ranks(kRanksOfUnits);
  torch::manual_seed(5);
  MixedBlock plain;
  auto sharded = ranks.make([&](const UnitOptions& options) { return Sharded<MixedBlock>(options); });
  const auto batch = batch_of(7, 5);
  plain->forward(batch).square().sum().backward();
  const auto parts = batch.tensor_split(kRanksOfUnits);
  ranks.run([&](int rank) {
    sharded[static_cast<size_t>(rank)]->forward(parts[static_cast<size_t>(rank)]).square().sum().backward();
  });
  auto given = assembled(sharded, true);
  auto expected = parameters_of(plain, true);
  EXPECT_LE(largest_difference({given["narrow"]}, {expected["narrow"]}),
            1e-5 * expected["narrow"].abs().max().item<double>());
  given.erase("narrow");
  expected.erase("narrow");
  for (auto* tensors : {&given, &expected}) tensors->at("complex") = at::view_as_real(tensors->at("complex"));
  expect_same(given, expected);
}

/// A unit in a unit, and a plain block after it.
template <typename Inner>
struct NestedBlockImpl : torch::nn::Module {
  explicit NestedBlockImpl(const std::function<Inner()>& make) {
    inner = register_module("inner", make());
    outer = register_module("outer", MlpBlock());
  }
  torch::Tensor forward(const torch::Tensor& x) { return outer(inner->forward(outer(x))); }

  Inner inner{nullptr};
  MlpBlock outer{nullptr};
};

TEST(ShardedUnitsTest, AUnitInAUnitIsCutOnce) {
  ShardedRanks ranks(kRanksOfUnits);
  torch::manual_seed(5);
  const auto plain = std::make_shared<NestedBlockImpl<MlpBlock>>([] { return MlpBlock(); });
  using Nested = NestedBlockImpl<Sharded<MlpBlock>>;
  auto sharded = ranks.make([](const UnitOptions& options) {
    return Sharded<Nested>(options,
                           std::function<Sharded<MlpBlock>()>([&] { return Sharded<MlpBlock>(options); }));
  });
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto batch = batch_of(7, 5);
  plain->forward(batch).square().sum().backward();
  const auto parts = batch.tensor_split(kRanksOfUnits);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    sharded[self]->forward(parts[self]).square().sum().backward();
    const auto& counts = gathered_units(*sharded[self]).counts();
    EXPECT_EQ(counts.units, 0);
    EXPECT_EQ(counts.most_units, 2);
    EXPECT_EQ(counts.gathers, 4);
    EXPECT_EQ(counts.reduce_scatters, 2);
  });
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

TEST(ShardedUnitsTest, UnitsCanBeRecomputed) {
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    recompute(block, recompute(block, x)).square().sum().backward();
  });
  expect_equal_gradients<MlpBlock>([](auto& block, const torch::Tensor& x) {
    const auto twice = [&](const torch::Tensor& in) { return block->forward(block->forward(in)); };
    recompute(twice, x).square().sum().backward();
  });
}

TEST(ShardedUnitsTest, ARecomputedUnitStaysGatheredForItsBackward) {
  ShardedRanks ranks(2);
  auto first = ranks.make([](const UnitOptions& options) { return Sharded<MlpBlock>(options); });
  auto second = ranks.make([](const UnitOptions& options) { return Sharded<MlpBlock>(options); });
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

TEST(ShardedUnitsTest, UnitsCanRecompute) {
  const auto once = [](auto& block, const torch::Tensor& x) { block->forward(x).square().sum().backward(); };
  const auto twice = [](auto& block, const torch::Tensor& x) {
    block->forward(block->forward(x)).square().sum().backward();
  };
  expect_equal_gradients<RecomputingBlock>(once);
  expect_equal_gradients<RecomputingBlock>(twice);
}

/// Sparse gradients, as of an embedding.
struct LookupImpl : torch::nn::Module {
  LookupImpl() {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 5).sparse(true)));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return table(x.abs().mul(3).to(torch::kLong).clamp_max(8));
  }

  torch::nn::Embedding table{nullptr};
};
TORCH_MODULE(Lookup);

TEST(ShardedUnitsTest, SparseGradientsBecomeDense) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  Lookup plain;
  auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<Lookup>(options); });
  const auto batch = batch_of(4, 5);
  plain->forward(batch).square().sum().backward();
  const auto parts = batch.tensor_split(2);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    sharded[self]->forward(parts[self]).square().sum().backward();
  });
  expect_same(assembled(sharded, true), {{"table.weight", plain->table->weight.grad().to_dense()}});
}

/// Takes and returns structures, and a number by default.
struct StructuredImpl : torch::nn::Module {
  StructuredImpl() { weight = register_parameter("weight", torch::randn({5, 5}, torch::kDouble)); }
  std::tuple<torch::Tensor, std::vector<torch::Tensor>> forward(const std::vector<torch::Tensor>& xs,
                                                                double scale = 2) {
    std::vector<torch::Tensor> products;
    for (const auto& x : xs) products.push_back(x.matmul(weight) * scale);
    return {torch::ones({2}, torch::kLong), products};
  }
  torch::Tensor weight;
};
TORCH_MODULE(Structured);

TEST(ShardedUnitsTest, TakesAndReturnsStructuresAndDefaultArguments) {
  expect_equal_gradients<Structured>([](auto& block, const torch::Tensor& x) {
    const auto [ones, products] = block(std::vector<torch::Tensor>{x, 2 * x});
    EXPECT_TRUE(ones.equal(torch::ones({2}, torch::kLong)));
    ASSERT_EQ(products.size(), 2U);
    // Only one of the results has a gradient.
    products[1].square().sum().backward();
  });
}

TEST(ShardedUnitsTest, TakesTheBlocksPlaceInASequential) {
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

TEST(ShardedUnitsTest, AutocastComputesTheSame) {
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

TEST(ShardedUnitsTest, EvaluationGathersAndFrees) {
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

TEST(ShardedUnitsTest, TrainsBatchNormAndItsBuffers) {
  ShardedRanks ranks(2);
  torch::manual_seed(5);
  std::vector<ConvBlock> plain(2);
  auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<ConvBlock>(options); });
  for (auto& block : plain) {
    torch::manual_seed(5);
    block = ConvBlock();
  }
  const auto images = torch::randn({6, 3, 4, 4}, torch::kDouble).split(3);
  for (size_t i = 0; i < 2; ++i) plain[i]->forward(images[i]).square().sum().backward();
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    sharded[self]->forward(images[self]).square().sum().backward();
    EXPECT_EQ(sharded[self]->named_buffers().keys(), plain[self]->named_buffers().keys());
    EXPECT_LE(largest_difference(sharded[self]->buffers(), plain[self]->buffers()), kExact);
  });
  auto expected = parameters_of(plain[0], true);
  for (const auto& [name, gradient] : parameters_of(plain[1], true)) expected[name] += gradient;
  expect_same(assembled(sharded, true), expected);
}

TEST(ShardedUnitsTest, FollowsAChangeOfDtype) {
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

TEST(ShardedUnitsTest, GivesCopiesOfTheWholeParameters) {
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

TEST(ShardedUnitsTest, AnOptimizerOfTheShardsMakesOneDevicesSteps) {
  for (const int num_ranks : {1, 2, 4}) {
    ShardedRanks ranks(num_ranks);
    torch::manual_seed(5);
    AttentionBlock plain;
    auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<AttentionBlock>(options); });
    const auto batch = torch::randn({4, 3, 8}, torch::kDouble);
    const auto train = [](auto& block, const torch::Tensor& x) {
      torch::optim::Adam adam(block->parameters(), torch::optim::AdamOptions(1e-3).weight_decay(0.1));
      for (int step = 0; step < 20; ++step) {
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
