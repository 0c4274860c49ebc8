// Training under a strategy equals a plain loop over LibTorch on one device, for every kind of step.
#include "lockstep/tests/support/one_device_equivalence.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

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
    // Pieces of one example, as many as the replica's shard has, and then an empty last piece.
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
  const auto expected = trained_alone<TanhNet>(make_tanh_net, data, momentum_sgd(), {.clip_norm = 0.2});
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
    // apply_gradients() does not sum again, so it reports the clipped norm.
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

INSTANTIATE_TEST_SUITE_P(Replicas, OneDeviceEquivalence,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values("hierarchical_copy", "reduction_to_one_device")),
                         [](const auto& info) {
                           return std::get<1>(info.param) + "_" + std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace lockstep
