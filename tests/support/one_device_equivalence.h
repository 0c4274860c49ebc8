#pragma once

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = std::function<OptimizerPointer(const std::vector<torch::Tensor>&)>;

/// 13 examples: batches of 5 end with one of 3, which three or four replicas cut unevenly, even into empty
/// shards.
inline constexpr int64_t kExamples = 13;
inline constexpr int64_t kBatchSize = 5;
inline constexpr int kEpochs = 4;

/// The number of replicas, and the name of the cross-device op between them.
using ReplicasAndOps = std::tuple<int, std::string>;

struct Schedule {
  int64_t batch_size = kBatchSize;
  int epochs = kEpochs;
};

inline Example examples_of_three_classes() {
  torch::manual_seed(21);
  return {torch::randn({kExamples, 6}, torch::kDouble), torch::randint(0, 3, {kExamples})};
}

template <typename Net>
torch::Tensor example_losses(Net& model, const Example& batch) {
  return torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
}

struct AloneOptions {
  Schedule schedule;
  double clip_norm = -1;                  ///< below 0 clips nothing
  std::vector<double>* losses = nullptr;  ///< gets the mean loss of each step
};

/// The oracle: LibTorch alone, without a strategy.
template <typename Net, typename MakeNet>
std::vector<torch::Tensor> trained_alone(const MakeNet& make_net, const Example& data,
                                         const MakeOptimizer& make, const AloneOptions& options = {}) {
  torch::manual_seed(17);
  Net model = make_net();
  const auto optimizer = make(model->parameters());
  const auto [batch_size, epochs] = options.schedule;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t begin = 0; begin < kExamples; begin += batch_size) {
      const int64_t count = std::min(batch_size, kExamples - begin);
      optimizer->zero_grad();
      const torch::Tensor loss =
          example_losses(model, {data.data.narrow(0, begin, count), data.target.narrow(0, begin, count)})
              .mean();
      loss.backward();
      if (options.losses != nullptr) options.losses->push_back(loss.item<double>());
      if (options.clip_norm >= 0) torch::nn::utils::clip_grad_norm_(model->parameters(), options.clip_norm);
      optimizer->step();
    }
  }
  return values_of(model->parameters());
}

template <typename Net>
void expect_bit_equal_replicas(const Mirrored<Net>& model, int64_t step) {
  for (size_t replica = 1; replica < model.local_values().size(); ++replica) {
    EXPECT_TRUE(bit_equal(model.local_values()[replica]->parameters(), model.primary()->parameters()))
        << "replica " << replica << " after step " << step;
  }
}

/// The same training by `step(replica, model, optimizer, shard)`. The replicas must be bit-equal after every
/// step.
template <typename Net, typename MakeNet, typename Step>
std::vector<torch::Tensor> trained_on_replicas(const ReplicasAndOps& replicas_and_ops,
                                               const MakeNet& make_net, const Example& data,
                                               const MakeOptimizer& make, const Step& step,
                                               const Schedule& schedule = {}) {
  const auto& [replicas, ops] = replicas_and_ops;
  MirroredStrategy strategy(cpu_devices(replicas),
                            {.cross_device_ops = make_cross_device_ops(ops), .intra_op_threads = 1});
  torch::manual_seed(17);
  auto model = strategy.scope([&](ReplicaContext&) { return make_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return make(model[replica]->parameters()); });
  auto batches = strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                             {.global_batch_size = schedule.batch_size});
  int64_t steps = 0;
  for (int epoch = 0; epoch < schedule.epochs; ++epoch) {
    for (const auto& batch : batches) {
      strategy.run(step, model, optimizer, batch);
      expect_bit_equal_replicas(model, ++steps);
    }
  }
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

/// one_device_equivalence_test.cpp gives the parameter's values to the tests of all files.
class OneDeviceEquivalence : public ::testing::TestWithParam<ReplicasAndOps> {};

}  // namespace lockstep
