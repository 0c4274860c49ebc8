// Sharded units compute what their blocks compute, with the same gradients.
#include "lockstep/strategies/sharding/sharded.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adam.h>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

/// Two blocks, plain or sharded.
template <typename Block>
struct TwoBlocksImpl : torch::nn::Module {
  template <typename Make>
  explicit TwoBlocksImpl(const Make& make) {
    first = register_module("first", make());
    second = register_module("second", make());
  }
  torch::Tensor forward(const torch::Tensor& x) { return second->forward(first->forward(x)); }

  Block first{nullptr}, second{nullptr};
};

template <typename Block>
using TwoBlocks = std::shared_ptr<TwoBlocksImpl<Block>>;

template <typename Block>
TwoBlocks<Block> plain_blocks() {
  torch::manual_seed(5);
  return std::make_shared<TwoBlocksImpl<Block>>([] { return Block(); });
}

template <typename Block>
auto sharded_blocks(ShardedRanks& ranks) {
  return ranks.make([](const UnitOptions& options) {
    return std::make_shared<TwoBlocksImpl<Sharded<Block>>>([&] { return Sharded<Block>(options); });
  });
}

/// Gradients and results of a whole batch on one device.
struct Outcome {
  torch::Tensor result;
  torch::Tensor input_gradient;
  NamedTensors gradients;
};

template <typename Model>
Outcome on_one_device(Model& model, const torch::Tensor& batch) {
  const auto x = batch.clone().requires_grad_();
  const auto y = model->forward(x);
  y.square().sum().backward();
  return {y.detach(), x.grad(), parameters_of(model, true)};
}

template <typename Model>
Outcome on_ranks(ShardedRanks& ranks, std::vector<Model>& models, const torch::Tensor& batch) {
  std::vector<torch::Tensor> results(models.size());
  std::vector<torch::Tensor> gradients(models.size());
  const auto parts = batch.tensor_split(ranks.size());
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    const auto x = parts[self].clone().requires_grad_();
    const auto y = models[self]->forward(x);
    y.square().sum().backward();
    results[self] = y.detach();
    gradients[self] = x.grad();
  });
  return {torch::cat(results), torch::cat(gradients), assembled(models, true)};
}

void expect_same_outcome(const Outcome& given, const Outcome& expected) {
  EXPECT_LE(
      largest_difference({given.result, given.input_gradient}, {expected.result, expected.input_gradient}),
      kExact);
  expect_same(given.gradients, expected.gradients);
}

class ShardedTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedTest, testing::Values(1, 2, 3, 4));

template <typename Block>
void expect_the_blocks_numbers(int num_ranks, const torch::Tensor& batch) {
  ShardedRanks ranks(num_ranks);
  auto plain = plain_blocks<Block>();
  auto sharded = sharded_blocks<Block>(ranks);
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto expected = on_one_device(plain, batch);
  expect_same_outcome(on_ranks(ranks, sharded, batch), expected);
}

TEST_P(ShardedTest, ComputesAnMlpsNumbers) {
  expect_the_blocks_numbers<MlpBlock>(GetParam(), torch::randn({6, 5}, torch::kDouble));
}

TEST_P(ShardedTest, ComputesAttentionsNumbers) {
  expect_the_blocks_numbers<AttentionBlock>(GetParam(), torch::randn({4, 3, 8}, torch::kDouble));
}

TEST_P(ShardedTest, RanksMayHaveEmptyBatches) {
  expect_the_blocks_numbers<MlpBlock>(GetParam(), torch::randn({2, 5}, torch::kDouble));
}

}  // namespace
}  // namespace lockstep
