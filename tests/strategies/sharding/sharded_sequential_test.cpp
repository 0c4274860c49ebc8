// Sequences in units compute what a torch::nn::Sequential of the same elements computes, whatever elements
// form a unit.
#include "lockstep/strategies/sharding/sharded_sequential.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>

#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

constexpr int kRanksOfSequences = 2;

std::vector<ElementFactory> elements() {
  return {[] { return MlpBlock(); }, [] { return torch::nn::Tanh(); }, [] { return MlpBlock(5, 3); },
          ElementFactory([] { return MlpBlock(); }, "last"), [] { return torch::nn::Tanh(); }};
}

torch::nn::Sequential plain_elements() {
  torch::manual_seed(5);
  torch::nn::Sequential plain;
  size_t number = 0;
  for (const auto& element : elements()) {
    const auto name = element.name.empty() ? std::to_string(number) : element.name;
    plain->push_back(name, element.make());
    ++number;
  }
  return plain;
}

/// The names of the units' elements.
std::vector<std::string> names_of(ShardedSequential& model) {
  std::vector<std::string> names;
  for (const auto* unit : model->sharded_units()) names.push_back(unit->unit_options().name);
  return names;
}

void expect_the_sequences_numbers(const std::function<ShardedSequential(const UnitOptions&)>& make,
                                  const std::vector<std::string>& units) {
  ShardedRanks ranks(kRanksOfSequences);
  auto plain = plain_elements();
  auto sharded = ranks.make(make);
  EXPECT_EQ(names_of(sharded[0]), units);
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto batch = torch::randn({6, 5}, torch::kDouble);
  const auto expected = plain->forward(batch);
  expected.square().sum().backward();
  std::vector<torch::Tensor> results(kRanksOfSequences);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    results[self] = sharded[self]->forward(batch.tensor_split(kRanksOfSequences)[self]);
    results[self].square().sum().backward();
  });
  EXPECT_LE(largest_difference({torch::cat(results)}, {expected}), kExact);
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

TEST(ShardedSequentialTest, EachElementWithParametersIsAUnit) {
  expect_the_sequences_numbers([](const UnitOptions& options) { return shard_elements(elements(), options); },
                               {"0", "1 to 2", "last", "4"});
}

TEST(ShardedSequentialTest, ElementsJoinUntilAUnitHasTheBytes) {
  // The first has 82 parameters of 8 bytes.
  expect_the_sequences_numbers(
      [](const UnitOptions& options) {
        return shard_elements(elements(), options, {.min_unit_bytes = 82 * 8 + 1});
      },
      {"0 to 2", "last to 4"});
  expect_the_sequences_numbers(
      [](const UnitOptions& options) {
        return shard_elements(elements(), options, {.min_unit_bytes = 1 << 20});
      },
      {"0 to 4"});
}

TEST(ShardedSequentialTest, CutsASequenceThatIsThere) {
  expect_the_sequences_numbers(
      [](const UnitOptions& options) { return shard_elements(plain_elements(), options); },
      {"0", "1 to 2", "last", "4"});
}

TEST(ShardedSequentialTest, ElementsThatAreUnitsJoinTheSameUnitsOnAllRanks) {
  // The shards of one element lie on the first rank only.
  ShardedRanks ranks(kRanksOfSequences);
  const auto tiny = [](const UnitOptions& options) {
    return
        [options] { return Sharded<torch::nn::Linear>(options, torch::nn::LinearOptions(2, 2).bias(false)); };
  };
  auto sharded = ranks.make([&](const UnitOptions& options) {
    const auto plain = [] { return torch::nn::Linear(2, 2); };
    return shard_elements({tiny(options), tiny(options), plain, tiny(options), plain}, options);
  });
  EXPECT_EQ(sharded[0]->units()[0]->parameters()[0].numel(), 4);
  EXPECT_EQ(sharded[1]->units()[0]->parameters()[0].numel(), 0);
  for (auto& model : sharded) EXPECT_EQ(names_of(model), (std::vector<std::string>{"0 to 2", "3 to 4"}));
  const auto batch = torch::randn({2, 2});
  std::vector<torch::Tensor> results(kRanksOfSequences);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    results[self] = sharded[self]->forward(batch);
    results[self].sum().backward();
  });
  EXPECT_TRUE(results[0].equal(results[1]));
}

TEST(ShardedSequentialTest, SetsTheModeOfItsElements) {
  auto model = shard_elements({[] { return torch::nn::Dropout(0.5); }}, {});
  const auto x = torch::ones({100});
  model->eval();
  EXPECT_TRUE(model->forward(x).equal(x));
  model->train();
  EXPECT_FALSE(model->forward(x).equal(x));
}

TEST(ShardedSequentialTest, CanBePartOfAUnit) {
  struct Outer : torch::nn::Module {
    explicit Outer(const UnitOptions& options) {
      first = register_module("first", MlpBlock());
      rest = register_module("rest", shard_elements(elements(), options));
    }
    torch::Tensor forward(const torch::Tensor& x) { return rest->forward(first->forward(x)); }
    MlpBlock first{nullptr};
    ShardedSequential rest{nullptr};
  };
  ShardedRanks ranks(kRanksOfSequences);
  torch::manual_seed(5);
  MlpBlock first;
  torch::nn::Sequential rest;
  for (const auto& element : elements()) rest->push_back(element.make());
  auto sharded = ranks.make([](const UnitOptions& options) { return Sharded<Outer>(options, options); });
  const auto x = torch::randn({2, 5}, torch::kDouble);
  const auto expected = rest->forward(first->forward(x));
  ranks.run([&](int rank) {
    auto& own = sharded[static_cast<size_t>(rank)];
    EXPECT_LE(largest_difference({own->forward(x)}, {expected}), kExact);
    EXPECT_EQ(gathered_units(*own).counts().most_units, 2);
  });
  name_sharded_units(*sharded[0]);
  EXPECT_EQ(sharded[0]->named_parameters().size(), 4 + 3 * 4);
}

}  // namespace
}  // namespace lockstep
