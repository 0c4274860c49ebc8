// Optimizer state in the host's memory while parameters are on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <sstream>
#include <tuple>

#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/scaled_weight.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

MakeOptimizer adam_by_libtorch() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).eps(1e-3));
  };
}

MakeOptimizer fused_adam() {
  return [](const auto& parameters) {
    return std::make_unique<FusedAdam>(parameters, FusedAdamOptions(0.01).eps(1e-3));
  };
}

/// Returns the tensors of all states of an optimizer of one of the two kinds.
std::vector<torch::Tensor> moments_of(torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> moments;
  for (const auto& [key, state] : optimizer.state()) {
    if (const auto* fused = dynamic_cast<const FusedAdamParamState*>(state.get())) {
      moments.insert(moments.end(), {fused->exp_avg(), fused->exp_avg_sq()});
    } else {
      const auto& adam = dynamic_cast<const torch::optim::AdamParamState&>(*state);
      moments.insert(moments.end(), {adam.exp_avg(), adam.exp_avg_sq()});
    }
  }
  return moments;
}

class HostOptimizerStateGpu : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  static MakeOptimizer make_optimizer() {
    return std::get<1>(GetParam()) == "Adam" ? adam_by_libtorch() : fused_adam();
  }
};

INSTANTIATE_TEST_SUITE_P(Stages, HostOptimizerStateGpu,
                         testing::Combine(testing::Values(0, 1, 2), testing::Values("Adam", "FusedAdam")),
                         [](const auto& info) {
                           return "Stage" + std::to_string(std::get<0>(info.param)) + std::get<1>(info.param);
                         });

TEST_P(HostOptimizerStateGpu, TrainingEqualsLibTorchAloneOnTheCpuEvenAfterTheStateWasReadFromAFile) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const int stage = std::get<0>(GetParam());
  MirroredStrategy strategy(
      {"gpu:0"}, {.replicas_per_device = 2, .sharding = {.stage = stage, .host_optimizer_state = true}});
  torch::manual_seed(17);
  auto model = strategy.scope([](ReplicaContext&) { return make_tanh_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return make_optimizer()(model[replica]->parameters()); });
  const auto data = examples_of_three_classes();
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
    for (const auto& own : optimizer.local_values()) {
      const auto moments = moments_of(*own);
      EXPECT_FALSE(moments.empty());
      for (const auto& moment : moments) EXPECT_TRUE(moment.is_cpu());
    }
    if (stage > 0) continue;  // states of slices are under tensors that no archive knows
    for (const auto& own : optimizer.local_values()) {
      std::stringstream file;
      torch::save(*own, file);
      torch::load(*own, file, torch::Device(torch::kCUDA, 0));
    }
  }
  for (const auto& own : model.local_values()) {
    for (const auto& parameter : own->parameters()) EXPECT_TRUE(parameter.is_cuda());
    EXPECT_LT(largest_difference(on_host(own->parameters()),
                                 trained_alone<TanhNet>(make_tanh_net, data, adam_by_libtorch())),
              1e-12);
  }
  expect_no_races();
}

TEST(HostOptimizerStateGpuTest, AGradScalerSkipsAndSteps) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"},
                            {.replicas_per_device = 2, .sharding = {.host_optimizer_state = true}});
  ScaledWeight scaled(strategy);
  scaled.step(1);
  for (const auto& own : scaled.weight.local_values()) EXPECT_TRUE(torch::equal(own.cpu(), torch::ones({4})));
  scaled.step(-1);
  // Adam's first step has the length of its rate, whatever the gradient.
  for (const auto& own : scaled.weight.local_values())
    EXPECT_TRUE(torch::allclose(own.cpu(), torch::full({4}, 0.9F), 0, 1e-6));
  for (const auto& scale : scaled.scaler.local_values()) EXPECT_EQ(scale.get_scale(), 2);
  expect_no_races();
}

TEST(HostOptimizerStateGpuTest, AStepIsNotCaptured) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.sharding = {.host_optimizer_state = true}});
  torch::manual_seed(17);
  auto model = strategy.scope([](ReplicaContext&) { return make_tanh_net(); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) -> OptimizerPointer {
    return fused_adam()(model[replica]->parameters());
  });
  const auto data = examples_of_three_classes();
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = 13});
  CudaGraph graph(plain_step<TanhNet>, {.warm_up_runs = 1});
  const auto run = [&] {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : batches) strategy.run(graph, model, optimizer, batch);
    }
  };
  EXPECT_THAT(message_of<InvalidArgument>(run),
              testing::HasSubstr("whose state is on the host cannot be captured"));
}

}  // namespace
}  // namespace lockstep
