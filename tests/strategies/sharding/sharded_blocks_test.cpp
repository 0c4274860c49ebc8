// The contents of units: frozen and tied parameters, several dtypes, buffers, units in units, structures.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <tuple>

#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

struct FrozenPartImpl : MlpBlockImpl {
  FrozenPartImpl() { first->weight.set_requires_grad(false); }
};
TORCH_MODULE(FrozenPart);

TEST(ShardedBlocksTest, FrozenParametersGetNoGradient) {
  expect_equal_gradients<FrozenPart>([](auto& block, const torch::Tensor& x) {
    block->forward(x).square().sum().backward();
    for (const auto& item : block->named_parameters())
      EXPECT_EQ(item.value().grad().defined(), item.key() != "first.weight") << item.key();
  });
}

TEST(ShardedBlocksTest, ParametersCanBeFrozenAfterTheyAreCut) {
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

TEST(ShardedBlocksTest, AFrozenUnitIsFreedWhenItsInputsHaveTheirGradients) {
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

TEST(ShardedBlocksTest, TiedParametersStayTied) {
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

TEST(ShardedBlocksTest, TakesParametersOfSeveralDtypesAndAnySize) {
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

TEST(ShardedBlocksTest, AUnitInAUnitIsCutOnce) {
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

TEST(ShardedBlocksTest, SparseGradientsBecomeDense) {
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

TEST(ShardedBlocksTest, TakesAndReturnsStructuresAndDefaultArguments) {
  expect_equal_gradients<Structured>([](auto& block, const torch::Tensor& x) {
    const auto [ones, products] = block(std::vector<torch::Tensor>{x, 2 * x});
    EXPECT_TRUE(ones.equal(torch::ones({2}, torch::kLong)));
    ASSERT_EQ(products.size(), 2U);
    // Only one of the results has a gradient.
    products[1].square().sum().backward();
  });
}

TEST(ShardedBlocksTest, AModuleInAUnitHasAModeOfItsOwn) {
  ConvBlock block;
  Sharded<ConvBlock> unit(UnitOptions{}, block);
  unit->eval();
  EXPECT_FALSE(block->norm->is_training());
  unit->named_children()["norm"]->train();
  EXPECT_TRUE(block->norm->is_training());
  EXPECT_FALSE(block->conv->is_training());
  const auto before = unit->named_buffers()["norm.running_mean"].clone();
  unit->forward(torch::randn({2, 3, 4, 4}, torch::kDouble));
  EXPECT_FALSE(unit->named_buffers()["norm.running_mean"].equal(before));
}

TEST(ShardedBlocksTest, TrainsBatchNormAndItsBuffers) {
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

}  // namespace
}  // namespace lockstep
