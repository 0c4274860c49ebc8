#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/datasets/tensor_dataset.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/tests/strategies/tanh_net.h"

namespace lockstep {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = std::function<OptimizerPointer(const std::vector<torch::Tensor>&)>;

/// 13 examples: batches of 5 end with one of 3, which three or four replicas cut unevenly or to nothing.
inline constexpr int64_t kExamples = 13;
inline constexpr int64_t kBatchSize = 5;
inline constexpr int kEpochs = 4;

inline Example examples_of_three_classes() {
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

inline TanhNet make_tanh_net() {
  return TanhNet();
}

inline MakeOptimizer momentum_sgd() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  };
}

/// The parameter is the number of replicas; one_device_equivalence_test.cpp gives its values to the tests of
/// all files.
class OneDeviceEquivalence : public testing::TestWithParam<int> {};

}  // namespace lockstep
