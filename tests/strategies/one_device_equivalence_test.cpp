// Training under a strategy equals a plain loop over LibTorch on one device, whatever a step is made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "lockstep/datasets/tensor_dataset.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/tests/strategies/tanh_net.h"
#include "lockstep/training/fused_adam.h"
#include "lockstep/training/fused_sgd.h"

namespace lockstep {
namespace {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = std::function<OptimizerPointer(const std::vector<torch::Tensor>&)>;

/// 13 examples: batches of 5 end with one of 3, which three or four replicas cut unevenly or to nothing.
constexpr int64_t kExamples = 13;
constexpr int64_t kBatchSize = 5;
constexpr int kEpochs = 4;

Example examples_of_three_classes() {
  torch::manual_seed(21);
  return {torch::randn({kExamples, 6}, torch::kDouble), torch::randint(0, 3, {kExamples})};
}

template <typename Net>
torch::Tensor example_losses(Net& model, const Example& batch) {
  return torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
}

/// The oracle: no strategy, no replica, LibTorch alone. `clip_norm` below 0 clips nothing.
template <typename Net, typename MakeNet>
std::vector<torch::Tensor> trained_alone(const MakeNet& make_net, const Example& data,
                                         const MakeOptimizer& make, double clip_norm = -1) {
  torch::manual_seed(17);
  Net model = make_net();
  const auto optimizer = make(model->parameters());
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t begin = 0; begin < kExamples; begin += kBatchSize) {
      const int64_t count = std::min(kBatchSize, kExamples - begin);
      optimizer->zero_grad();
      example_losses(model, {data.data.narrow(0, begin, count), data.target.narrow(0, begin, count)})
          .mean()
          .backward();
      if (clip_norm >= 0) torch::nn::utils::clip_grad_norm_(model->parameters(), clip_norm);
      optimizer->step();
    }
  }
  return values_of(model->parameters());
}

/// The same training by `step(replica, model, optimizer, shard)`. Every replica must end bit-equal to the
/// first.
template <typename Net, typename MakeNet, typename Step>
std::vector<torch::Tensor> trained_on_replicas(int replicas, const MakeNet& make_net, const Example& data,
                                               const MakeOptimizer& make, const Step& step) {
  MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
  torch::manual_seed(17);
  auto model = strategy.scope([&](ReplicaContext&) { return make_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return make(model[replica]->parameters()); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) strategy.run(step, model, optimizer, batch);
  }
  for (const auto& own : model.local_values())
    EXPECT_TRUE(bit_equal(values_of(own->parameters()), values_of(model.primary()->parameters())));
  return values_of(model.primary()->parameters());
}

template <typename Net>
void plain_step(ReplicaContext& replica, Net& model, OptimizerPointer& optimizer, const Example& shard) {
  optimizer->zero_grad();
  compute_average_loss(replica, example_losses(model, shard)).backward();
  replica.apply_gradients(*optimizer);
}

TanhNet make_tanh_net() {
  return TanhNet();
}

MakeOptimizer momentum_sgd() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  };
}

class OneDeviceEquivalence : public testing::TestWithParam<int> {};

TEST_P(OneDeviceEquivalence, FusedSgdEqualsLibTorchsSgd) {
  const auto data = examples_of_three_classes();
  const MakeOptimizer fused = [](const auto& parameters) {
    return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(0.1).momentum(0.9).weight_decay(0.01));
  };
  const MakeOptimizer plain = [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  };
  EXPECT_LE(largest_difference(
                trained_on_replicas<TanhNet>(GetParam(), make_tanh_net, data, fused, plain_step<TanhNet>),
                trained_alone<TanhNet>(make_tanh_net, data, plain)),
            1e-12);
}

TEST_P(OneDeviceEquivalence, FusedAdamEqualsLibTorchsAdam) {
  const auto data = examples_of_three_classes();
  const MakeOptimizer fused = [](const auto& parameters) {
    return std::make_unique<FusedAdam>(parameters, 0.01);
  };
  const MakeOptimizer plain = [](const auto& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  };
  EXPECT_LE(largest_difference(
                trained_on_replicas<TanhNet>(GetParam(), make_tanh_net, data, fused, plain_step<TanhNet>),
                trained_alone<TanhNet>(make_tanh_net, data, plain)),
            1e-12);
}

TEST_P(OneDeviceEquivalence, AccumulatedMicroBatchesEqualTheBigBatch) {
  const auto data = examples_of_three_classes();
  const auto step = [](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer,
                       const Example& shard) {
    optimizer->zero_grad();
    // Pieces of one, of which a replica has as many as its shard is long, and then one more: an empty last
    // piece.
    const int64_t size = shard.data.size(0);
    {
      auto hold = replica.accumulate();
      for (int64_t i = 0; i < size; ++i) {
        const Example piece(shard.data.narrow(0, i, 1), shard.target.narrow(0, i, 1));
        compute_average_loss(replica, example_losses(model, piece)).backward();
      }
    }
    const Example rest(shard.data.narrow(0, size, 0), shard.target.narrow(0, size, 0));
    compute_average_loss(replica, example_losses(model, rest)).backward();
    replica.apply_gradients(*optimizer);
  };
  EXPECT_LE(
      largest_difference(trained_on_replicas<TanhNet>(GetParam(), make_tanh_net, data, momentum_sgd(), step),
                         trained_alone<TanhNet>(make_tanh_net, data, momentum_sgd())),
      1e-12);
}

TEST_P(OneDeviceEquivalence, ClippingTheSumEqualsClippingOnOneDevice) {
  const auto data = examples_of_three_classes();
  const auto expected = trained_alone<TanhNet>(make_tanh_net, data, momentum_sgd(), 0.2);
  const auto clip_in_apply = [](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer,
                                const Example& shard) {
    optimizer->zero_grad();
    compute_average_loss(replica, example_losses(model, shard)).backward();
    replica.apply_gradients(*optimizer, {.clip_norm = 0.2});
  };
  const auto clip_by_hand = [](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer,
                               const Example& shard) {
    optimizer->zero_grad();
    compute_average_loss(replica, example_losses(model, shard)).backward();
    replica.reduce_gradients(*optimizer);
    const double norm = torch::nn::utils::clip_grad_norm_(model->parameters(), 0.2);
    // What apply reports afterwards is the clipped norm: it has not summed again.
    const auto reported =
        replica.apply_gradients(*optimizer, {.clip_norm = std::numeric_limits<double>::infinity()});
    EXPECT_NEAR(reported.item<double>(), std::min(norm, 0.2), 1e-5);
  };
  EXPECT_LE(largest_difference(
                trained_on_replicas<TanhNet>(GetParam(), make_tanh_net, data, momentum_sgd(), clip_in_apply),
                expected),
            1e-12);
  EXPECT_LE(largest_difference(
                trained_on_replicas<TanhNet>(GetParam(), make_tanh_net, data, momentum_sgd(), clip_by_hand),
                expected),
            1e-12);
}

/// Uses `branch` only where some x[0] is above 1, so that some replicas do not reach it, and `never` at no
/// time.
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
  // Weight decay would move a parameter whose gradient were zero instead of undefined.
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

// Two nets that train against each other, each with an optimizer of its own and two backwards a step: the
// first net learns to imitate 1.5 x, the second to tell the imitation from it.

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
  // This backward reaches the critic as well, and adds to the sums of its last step what nobody will ask for.
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

  MirroredStrategy strategy(cpu_devices(GetParam()), {.intra_op_threads = 1});
  torch::manual_seed(31);
  auto generators = strategy.scope([](ReplicaContext&) { return make_double_linear(6, 6); });
  auto critics = strategy.scope([](ReplicaContext&) { return make_double_linear(6, 1); });
  auto generator_opts = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(generators[replica]->parameters(), sgd); });
  auto critic_opts = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(critics[replica]->parameters(), sgd); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});

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
    }
  }
  for (int replica = 0; replica < GetParam(); ++replica) {
    const auto at = static_cast<size_t>(replica);
    EXPECT_LE(largest_difference(values_of(generators.local_values()[at]->parameters()),
                                 values_of(generator->parameters())),
              1e-12);
    EXPECT_LE(largest_difference(values_of(critics.local_values()[at]->parameters()),
                                 values_of(critic->parameters())),
              1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, OneDeviceEquivalence, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace lockstep
