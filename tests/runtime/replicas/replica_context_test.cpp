#include "lockstep/runtime/replicas/replica_context.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

struct RecordingHandler : GradientHandler {
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer&,
                                const ApplyOptions& options) override {
    return torch::full({}, replica.replica_id() + options.clip_norm.value_or(0));
  }
  void reduce_gradients(ReplicaContext&, torch::optim::Optimizer&) override { ++reductions; }
  int reductions = 0;
};

ReplicaState state_of(int replica, int count) {
  return {.replica_id = replica,
          .local_id = replica,
          .num_replicas = count,
          .device = {c10::DeviceType::CPU, replica},
          .generator = {}};
}

TEST(ReplicaContext, HasTheCollectivesOfItsReplica) {
  constexpr int kRanks = 3;
  ReplicaGroup group(kRanks);
  group.run([&](int rank) {
    ReplicaState state = state_of(rank, kRanks);
    RecordingHandler handler;
    const ReplicaBackends channel = group.backend(rank);
    ReplicaContext replica(state, handler, &channel, {.global_size = 7, .local_size = 2});
    EXPECT_EQ(replica.replica_id(), rank);
    EXPECT_EQ(replica.num_replicas(), kRanks);
    EXPECT_EQ(replica.logical_device().str(), "cpu:" + std::to_string(rank));
    EXPECT_EQ(replica.global_batch_size(), 7);
    EXPECT_EQ(replica.local_batch_size(), 2);
    EXPECT_EQ(replica.all_reduce(ReduceOp::kSum, torch::full({}, rank + 1.0)).item<double>(), 6);
    const auto means = replica.all_reduce(
        ReduceOp::kMean, std::vector<torch::Tensor>{torch::full({}, 1.0 * rank), torch::full({}, 5.0)});
    EXPECT_EQ(means[0].item<double>(), 1);
    EXPECT_EQ(means[1].item<double>(), 5);
    auto value = torch::full({2}, 1.0 * rank);
    replica.all_reduce_(ReduceOp::kSum, value);
    EXPECT_TRUE(value.eq(3).all().item<bool>());
    replica.all_reduce_(ReduceOp::kMean, std::vector<torch::Tensor>{value});
    EXPECT_TRUE(value.eq(3).all().item<bool>());
    EXPECT_TRUE(
        torch::equal(replica.all_gather(torch::full({1}, rank)), torch::tensor({0, 1, 2}, torch::kLong)));
    auto copied = torch::full({1}, 1.0 * rank);
    replica.broadcast_(copied, 2);
    EXPECT_EQ(copied.item<double>(), 2);
  });
}

TEST(ReplicaContext, SumsNumbersOnTheHostWhateverTheDevices) {
  constexpr int kRanks = 2;
  ReplicaGroup group(kRanks);
  group.run([&](int rank) {
    ReplicaState state = state_of(rank, kRanks);
    if (rank == 1) state.device = {c10::DeviceType::CUDA, 0};
    RecordingHandler handler;
    const ReplicaBackends channel(nullptr, group.backend(rank));
    ReplicaContext replica(state, handler, &channel, {});
    EXPECT_EQ(replica.sum_on_host((int64_t{1} << 60) + rank), (int64_t{1} << 61) + 1);
  });
}

TEST(ReplicaContext, ComputesInTheGivenTypeOnItsDeviceWhileTheResultLives) {
  ReplicaState state = state_of(0, 1);
  RecordingHandler handler;
  const ReplicaContext replica(state, handler, nullptr, {});
  const auto x = torch::ones({2, 2});
  {
    const auto cast = replica.autocast(torch::kBFloat16);
    EXPECT_EQ(torch::matmul(x, x).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(torch::matmul(x, x).scalar_type(), torch::kFloat);
}

TEST(ReplicaContext, RefusesCollectivesInAFactory) {
  ReplicaState state = state_of(0, 1);
  RecordingHandler handler;
  ReplicaContext replica(state, handler, nullptr, {});
  auto value = torch::ones({1});
  EXPECT_THROW(replica.all_reduce(ReduceOp::kSum, value), InvalidArgument);
  EXPECT_THROW(replica.all_reduce_(ReduceOp::kSum, value), InvalidArgument);
  EXPECT_THROW(replica.all_gather(value), InvalidArgument);
  EXPECT_THROW(replica.broadcast_(value), InvalidArgument);
  EXPECT_THROW(replica.sum_on_host(1), InvalidArgument);
}

TEST(ReplicaContext, CountsNestedAccumulations) {
  ReplicaState state = state_of(0, 1);
  RecordingHandler handler;
  ReplicaContext replica(state, handler, nullptr, {});
  {
    const auto outer = replica.accumulate();
    {
      const auto inner = replica.accumulate();
      EXPECT_EQ(state.accumulations, 2);
    }
    EXPECT_EQ(state.accumulations, 1);
  }
  EXPECT_EQ(state.accumulations, 0);
}

TEST(ReplicaContext, HandsGradientsToItsStrategy) {
  ReplicaState state = state_of(4, 5);
  RecordingHandler handler;
  ReplicaContext replica(state, handler, nullptr, {});
  torch::optim::SGD optimizer(std::vector<torch::Tensor>{torch::ones({1}).requires_grad_()}, 0.1);
  EXPECT_EQ(replica.apply_gradients(optimizer, {.clip_norm = 0.5}).item<double>(), 4.5);
  replica.reduce_gradients(optimizer);
  EXPECT_EQ(handler.reductions, 1);
}

}  // namespace
}  // namespace lockstep
