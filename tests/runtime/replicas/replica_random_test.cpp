#include "lockstep/runtime/replicas/internal/replica_random.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

/// Random values that replica code draws without naming a generator.
std::vector<torch::Tensor> draws() {
  std::vector<torch::Tensor> values;
  torch::nn::Dropout dropout(0.5);
  values.push_back(dropout(torch::ones({200})));
  values.push_back(torch::rand({50}));
  values.push_back(torch::randn({50}));
  values.push_back(torch::randint(1000, {50}));
  values.push_back(torch::randperm(100));
  values.push_back(torch::empty({50}).uniform_());
  values.push_back(torch::empty({50}).bernoulli_(0.5));
  values.push_back(torch::multinomial(torch::ones({20}), 10));
  values.push_back(torch::rand_like(values[1]));
  values.push_back(torch::nn::Linear(8, 8)->weight.detach());
  return values;
}

std::vector<std::vector<torch::Tensor>> draws_of_replicas(uint64_t seed, int count) {
  ReplicaThreads threads(count, 1);
  std::vector<std::vector<torch::Tensor>> values(static_cast<size_t>(count));
  const auto errors = threads.run(
      [&](int replica) {
        const auto generator = make_replica_generator({c10::DeviceType::CPU, replica}, seed, replica);
        const ReplicaRandomGuard guard(generator);
        values[static_cast<size_t>(replica)] = draws();
      },
      [](int, const std::exception_ptr&) {});
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  return values;
}

TEST(ReplicaRandom, EqualSeedsAndReplicasDrawEqualNumbersInEveryRun) {
  const auto first = draws_of_replicas(7, 3);
  torch::manual_seed(99);  // must not affect the draws
  const auto second = draws_of_replicas(7, 3);
  for (size_t replica = 0; replica < first.size(); ++replica) {
    for (size_t i = 0; i < first[replica].size(); ++i)
      EXPECT_TRUE(torch::equal(first[replica][i], second[replica][i])) << "draw " << i;
  }
}

TEST(ReplicaRandom, AReplicasNumbersDoNotDependOnHowManyOthersThereAre) {
  const auto one = draws_of_replicas(7, 1);
  const auto three = draws_of_replicas(7, 3);
  for (size_t i = 0; i < one[0].size(); ++i)
    EXPECT_TRUE(torch::equal(one[0][i], three[0][i])) << "draw " << i;
}

TEST(ReplicaRandom, OtherReplicasAndOtherSeedsDrawOtherNumbers) {
  const auto values = draws_of_replicas(7, 3);
  const auto others = draws_of_replicas(8, 3);
  for (size_t i = 0; i < values[0].size(); ++i) {
    EXPECT_FALSE(torch::equal(values[0][i], values[1][i])) << "draw " << i;
    EXPECT_FALSE(torch::equal(values[1][i], values[2][i])) << "draw " << i;
    EXPECT_FALSE(torch::equal(values[0][i], others[0][i])) << "draw " << i;
  }
  // Seed 7, replica 1 differs from seed 8, replica 0.
  EXPECT_FALSE(torch::equal(values[1][1], others[0][1]));
}

TEST(ReplicaRandom, LeavesTheProcesssGeneratorUntouched) {
  torch::manual_seed(5);
  const auto expected = torch::rand({10});
  torch::manual_seed(5);
  draws_of_replicas(1, 2);
  EXPECT_TRUE(torch::equal(torch::rand({10}), expected));
}

TEST(ReplicaRandom, DrawsTheNumbersOfItsGeneratorAndAGivenGeneratorWins) {
  const auto generator = make_replica_generator({c10::DeviceType::CPU, 0}, 3, 0);
  const auto copy = generator.clone();
  const auto own = at::detail::createCPUGenerator(21);
  const auto expected_own = torch::rand({5}, at::detail::createCPUGenerator(21));
  {
    const ReplicaRandomGuard guard(generator);
    EXPECT_TRUE(torch::equal(torch::rand({5}, own), expected_own));
    EXPECT_TRUE(torch::equal(torch::rand({5}), torch::rand({5}, copy)));
    {
      const auto inner = make_replica_generator({c10::DeviceType::CPU, 0}, 3, 1);
      const auto inner_copy = inner.clone();
      const ReplicaRandomGuard inner_guard(inner);
      EXPECT_TRUE(torch::equal(torch::rand({5}), torch::rand({5}, inner_copy)));
    }
    EXPECT_TRUE(torch::equal(torch::rand({5}), torch::rand({5}, copy)));
  }
}

TEST(ReplicaRandom, HoldsInBackwardToo) {
  // A checkpointed dropout draws again in backward.
  const auto gradient_of = [](uint64_t seed) {
    const auto generator = make_replica_generator({c10::DeviceType::CPU, 0}, seed, 0);
    const ReplicaRandomGuard guard(generator);
    auto x = torch::ones({100}).requires_grad_();
    auto y = x * 1;
    y.register_hook([](const torch::Tensor& gradient) { return gradient * torch::rand({100}); });
    y.sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient_of(1), gradient_of(1)));
  EXPECT_FALSE(torch::equal(gradient_of(1), gradient_of(2)));
}

}  // namespace
}  // namespace lockstep
