// Training under a strategy equals a plain loop over LibTorch on one device, for nets with unused parameters,
// nets with sparse gradients, and two nets at once.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <memory>

#include "lockstep/tests/support/one_device_equivalence.h"

namespace lockstep {
namespace {

/// Uses `branch` only if some x[0] is above 1, so that some replicas do not reach it, and never uses `never`.
struct BranchingNetImpl : public torch::nn::Module {
  BranchingNetImpl() {
    base = register_module("base", torch::nn::Linear(6, 3));
    branch = register_module("branch", torch::nn::Linear(6, 3));
    never = register_module("never", torch::nn::Linear(2, 2));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto result = base(x);
    const auto positive = x.select(1, 0) > 1;
    if (positive.any().item<bool>()) result = result + branch(x) * positive.unsqueeze(1);
    return result;
  }
  torch::nn::Linear base{nullptr}, branch{nullptr}, never{nullptr};
};
TORCH_MODULE(BranchingNet);

TEST_P(OneDeviceEquivalence, ParametersUnusedOnSomeReplicasCountAsZerosAndUnusedOnAllAreNotTouched) {
  const auto data = examples_of_three_classes();
  const auto make_net = [] { return BranchingNet(); };
  // Weight decay would move a parameter whose gradient is zero instead of undefined.
  const MakeOptimizer decaying = [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  };
  const auto expected = trained_alone<BranchingNet>(make_net, data, decaying);
  const auto given =
      trained_on_replicas<BranchingNet>(GetParam(), make_net, data, decaying, plain_step<BranchingNet>);
  EXPECT_LE(largest_difference(given, expected), 1e-12);
  torch::manual_seed(17);
  const auto initial = values_of(make_net()->never->parameters());
  EXPECT_TRUE(bit_equal({given.end() - 2, given.end()}, initial));
}

struct WordNetImpl : public torch::nn::Module {
  WordNetImpl() {
    words = register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(7, 4).sparse(true)));
    head = register_module("head", torch::nn::Linear(4, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(words(x).sum(1)); }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(WordNet);

TEST_P(OneDeviceEquivalence, SparseGradientsAreSummedToo) {
  torch::manual_seed(23);
  const Example data(torch::randint(0, 7, {kExamples, 2}), torch::randint(0, 3, {kExamples}));
  const auto make_net = [] { return WordNet(); };
  const MakeOptimizer sgd = [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.5);
  };
  EXPECT_LE(
      largest_difference(trained_on_replicas<WordNet>(GetParam(), make_net, data, sgd, plain_step<WordNet>),
                         trained_alone<WordNet>(make_net, data, sgd)),
      1e-12);
}

// Two nets that train against each other, each with its own optimizer and two backwards a step: the first net
// learns to imitate 1.5 x, the second to tell the imitation from it.

template <typename Average, typename Apply>
void adversarial_step(torch::nn::Linear& generator, torch::nn::Linear& critic,
                      torch::optim::Optimizer& generator_opt, torch::optim::Optimizer& critic_opt,
                      const torch::Tensor& x, const Average& average, const Apply& apply) {
  const auto real = 1.5 * x;
  critic_opt.zero_grad();
  const auto fake = generator(x);
  average(torch::softplus(-critic(real)).squeeze(1) + torch::softplus(critic(fake.detach())).squeeze(1))
      .backward();
  apply(critic_opt);
  generator_opt.zero_grad();
  // This backward also reaches the critic, and adds to the sums of its last step; nobody uses the result.
  average(torch::softplus(-critic(fake)).squeeze(1)).backward();
  apply(generator_opt);
}

torch::nn::Linear make_double_linear(int64_t in, int64_t out) {
  torch::nn::Linear linear(in, out);
  linear->to(torch::kDouble);
  return linear;
}

TEST_P(OneDeviceEquivalence, TwoOptimizersTrainAgainstEachOther) {
  const auto data = examples_of_three_classes();
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::manual_seed(31);
  auto generator = make_double_linear(6, 6), critic = make_double_linear(6, 1);
  torch::optim::SGD generator_alone(generator->parameters(), sgd), critic_alone(critic->parameters(), sgd);

  const auto& [replicas, ops] = GetParam();
  MirroredStrategy strategy(cpu_devices(replicas),
                            {.cross_device_ops = make_cross_device_ops(ops), .intra_op_threads = 1});
  torch::manual_seed(31);
  auto generators = strategy.scope([](ReplicaContext&) { return make_double_linear(6, 6); });
  auto critics = strategy.scope([](ReplicaContext&) { return make_double_linear(6, 1); });
  auto generator_opts = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(generators[replica]->parameters(), sgd); });
  auto critic_opts = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(critics[replica]->parameters(), sgd); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});

  int64_t steps = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t begin = 0; begin < kExamples; begin += kBatchSize) {
      adversarial_step(
          generator, critic, generator_alone, critic_alone,
          data.data.narrow(0, begin, std::min(kBatchSize, kExamples - begin)),
          [](const torch::Tensor& losses) { return losses.mean(); },
          [](torch::optim::Optimizer& optimizer) { optimizer.step(); });
    }
    for (const auto& batch : batches) {
      strategy.run(
          [](ReplicaContext& replica, torch::nn::Linear& own_generator, torch::nn::Linear& own_critic,
             torch::optim::SGD& generator_opt, torch::optim::SGD& critic_opt, const Example& shard) {
            adversarial_step(
                own_generator, own_critic, generator_opt, critic_opt, shard.data,
                [&](const torch::Tensor& losses) { return compute_average_loss(replica, losses); },
                [&](torch::optim::Optimizer& optimizer) { replica.apply_gradients(optimizer); });
          },
          generators, critics, generator_opts, critic_opts, batch);
      ++steps;
      expect_bit_equal_replicas(generators, steps);
      expect_bit_equal_replicas(critics, steps);
    }
  }
  for (int replica = 0; replica < replicas; ++replica) {
    const auto at = static_cast<size_t>(replica);
    EXPECT_LE(largest_difference(values_of(generators.local_values()[at]->parameters()),
                                 values_of(generator->parameters())),
              1e-12);
    EXPECT_LE(largest_difference(values_of(critics.local_values()[at]->parameters()),
                                 values_of(critic->parameters())),
              1e-12);
  }
}

}  // namespace
}  // namespace lockstep
