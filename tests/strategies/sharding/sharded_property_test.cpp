// Random modules with random units in them, on several ranks, against the same modules on one device.
#include <gtest/gtest.h>

#include <random>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

constexpr int64_t kWidthOfParts = 3;

/// The plan of a random module: its parts, and which of them are units.
struct Plan {
  std::mt19937 random;  // draws the structure
  std::mt19937 units;   // draws the units
  bool is_sharded = false;
  UnitOptions options{};

  bool draw(double probability) { return std::bernoulli_distribution(probability)(random); }
  bool draw_unit(double probability) { return std::bernoulli_distribution(probability)(units) && is_sharded; }
};

/// One to three parts one after another: a weight, perhaps frozen, shared with the part before, used twice or
/// recomputed, or another random module.
struct RandomBlockImpl : torch::nn::Module {
  using Part = std::function<torch::Tensor(const torch::Tensor&)>;

  RandomBlockImpl(Plan& plan, int depth) {
    const int num_parts = std::uniform_int_distribution(1, 3)(plan.random);
    for (int i = 0; i < num_parts; ++i) add_part("part" + std::to_string(i), plan, depth);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = x;
    for (const auto& part : parts) y = part(y);
    return y;
  }
  void add_part(const std::string& name, Plan& plan, int depth);

  std::vector<Part> parts;
  torch::Tensor last_weight;
};
TORCH_MODULE(RandomBlock);

void RandomBlockImpl::add_part(const std::string& name, Plan& plan, int depth) {
  Part part;
  if (depth > 0 && plan.draw(0.6)) {
    const bool is_unit = plan.draw_unit(0.6);
    if (is_unit) {
      auto unit = register_module(name, Sharded<RandomBlock>(plan.options, RandomBlock(plan, depth - 1)));
      part = [unit](const torch::Tensor& x) { return unit->forward(x); };
    } else {
      auto block = register_module(name, RandomBlock(plan, depth - 1));
      part = [block](const torch::Tensor& x) { return block->forward(x); };
    }
  } else {
    const bool is_shared = last_weight.defined() && plan.draw(0.3);
    auto weight =
        is_shared ? last_weight : torch::randn({kWidthOfParts, kWidthOfParts}, torch::kDouble) * 0.5;
    const bool requires_grad = is_shared ? weight.requires_grad() : plan.draw(0.8);
    last_weight = register_parameter(name, weight, requires_grad);
    part = [weight = last_weight](const torch::Tensor& x) { return x + torch::tanh(x.matmul(weight.t())); };
  }
  if (plan.draw(0.2)) part = [part](const torch::Tensor& x) { return part(part(x)); };
  if (plan.draw(0.2)) part = [part](const torch::Tensor& x) { return recompute(part, x); };
  parts.push_back(std::move(part));
}

class ShardedPropertyTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, ShardedPropertyTest, testing::Range(0, 40));

TEST_P(ShardedPropertyTest, RandomModulesComputeOneDevicesNumbers) {
  const auto seed = static_cast<unsigned>(GetParam());
  const int num_ranks = 1 + GetParam() % 4;
  ShardedRanks ranks(num_ranks);
  const auto make_plan = [&](bool is_sharded, const UnitOptions& options) {
    return Plan{std::mt19937(seed), std::mt19937(seed + 1000), is_sharded, options};
  };
  torch::manual_seed(5);
  auto plan = make_plan(false, {});
  RandomBlock plain(plan, 3);
  auto sharded = ranks.make([&](const UnitOptions& options) {
    auto own = make_plan(true, options);
    return Sharded<RandomBlock>(options, RandomBlock(own, 3));
  });
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  for (int step = 0; step < 2; ++step) {
    const auto batch = torch::randn({5, kWidthOfParts}, torch::kDouble);
    const auto whole = batch.clone().requires_grad_();
    const auto expected = plain->forward(whole);
    expected.square().sum().backward();
    std::vector<torch::Tensor> results(static_cast<size_t>(num_ranks));
    std::vector<torch::Tensor> gradients(static_cast<size_t>(num_ranks));
    ranks.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      const auto x = batch.tensor_split(num_ranks)[self].clone().requires_grad_();
      results[self] = sharded[self]->forward(x);
      results[self].square().sum().backward();
      gradients[self] = x.grad();
      EXPECT_EQ(gathered_units(*sharded[self]).counts().units, 0);
    });
    const double scale = std::max(1.0, whole.grad().abs().max().item<double>());
    EXPECT_LE(largest_difference({torch::cat(results), torch::cat(gradients)}, {expected, whole.grad()}),
              kExact * scale);
    double most = 1;
    const auto all = parameters_of(plain, true);
    for (const auto& [name, gradient] : all) most = std::max(most, gradient.abs().max().item<double>());
    expect_same(assembled(sharded, true), all, kExact * most);
    // The next step's gradients are added.
  }
}

}  // namespace
}  // namespace lockstep
