// N replicas equal one device with the same global batch: uneven last batches and empty shards included.
#include <gtest/gtest.h>

#include "lockstep/datasets/tensor_dataset.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/strategies/mirrored_strategy.h"

namespace lockstep {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 5));
    second = register_module("second", torch::nn::Linear(5, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor train_step(ReplicaContext& replica, Net& model, torch::optim::SGD& optimizer,
                         const Example& batch) {
  optimizer.zero_grad();
  auto losses = torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  auto loss = compute_average_loss(replica, losses);
  loss.backward();
  replica.apply_gradients(optimizer);
  return loss.detach();
}

struct Trained {
  std::vector<std::vector<torch::Tensor>> parameters;  // of each replica
  std::vector<double> losses;
};

Trained train(int replicas, const std::shared_ptr<CrossDeviceOps>& ops) {
  // 13 examples in batches of 4: the last batch has one, so that most replicas have an empty shard.
  torch::manual_seed(3);
  TensorDataset dataset(torch::randn({13, 6}, torch::kDouble), torch::randint(0, 3, {13}));
  MirroredStrategy strategy(cpu_devices(replicas), {.cross_device_ops = ops, .intra_op_threads = 1});
  torch::manual_seed(7);
  auto model = strategy.scope([](ReplicaContext&) { return Net(); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return torch::optim::SGD(model[replica]->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  });
  auto batches = strategy.distribute_dataset(dataset, {.global_batch_size = 4, .shuffle_seed = 5});
  Trained result;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : batches) {
      auto losses = strategy.run(train_step, model, optimizer, batch);
      result.losses.push_back(strategy.reduce(ReduceOp::kSum, losses).item<double>());
    }
  }
  for (const auto& replica : model.local_values()) {
    std::vector<torch::Tensor> copy;
    for (const auto& parameter : replica->parameters()) copy.push_back(parameter.detach().clone());
    result.parameters.push_back(copy);
  }
  return result;
}

class Parity : public testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(Parity, ReplicasEqualOneDeviceAndEachOther) {
  const auto [replicas, ops] = GetParam();
  const auto expected = train(1, nullptr);
  const auto given = train(replicas, make_cross_device_ops(ops));
  ASSERT_EQ(expected.losses.size(), 20U);
  ASSERT_EQ(given.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) EXPECT_NEAR(given.losses[i], expected.losses[i], 1e-12);
  for (size_t i = 0; i < expected.parameters[0].size(); ++i) {
    EXPECT_LE((given.parameters[0][i] - expected.parameters[0][i]).abs().max().item<double>(), 1e-12);
    for (const auto& replica : given.parameters)
      EXPECT_TRUE(torch::equal(replica[i], given.parameters[0][i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, Parity,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values("hierarchical_copy", "reduction_to_one_device")),
                         [](const auto& info) {
                           return std::get<1>(info.param) + "_" + std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace lockstep
