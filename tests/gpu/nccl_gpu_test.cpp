// NCCL on one GPU: connecting, collectives, graphs, failed runs. Two GPUs train over it in
// mirrored_gpu_test.cpp and cuda_graph_training_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"

namespace lockstep {
namespace {

class NcclGpu : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_GPUS(1);
    forget_races();
    strategy_.emplace(std::vector<std::string>{"gpu:0"}, StrategyOptions{.cross_device_ops = nccl_ops()});
  }
  void TearDown() override {
    strategy_.reset();
    expect_no_races();
  }

  /// Returns twice the value, passed through each collective.
  static torch::Tensor by_all_collectives(ReplicaContext& replica, const torch::Tensor& value) {
    const auto sum = replica.all_reduce(ReduceOp::kSum, value + value);
    const auto mean = replica.all_reduce(ReduceOp::kMean, sum * 3);
    const auto part = replica.reduce_scatter(ReduceOp::kSum, mean - sum);
    const auto all = replica.all_gather(replica.all_to_all(part));
    replica.broadcast_(all, 0);
    // Several tensors, one of them not contiguous, are packed.
    const auto matrix = torch::stack({all, all}).t();
    replica.all_reduce_(ReduceOp::kSum, std::vector<torch::Tensor>{matrix, sum});
    return matrix.sum(1) - sum * 3;
  }

  PerReplica<torch::Tensor> values(int64_t value) {
    return strategy_->distribute_values_from_function([&](const ValueContext&) {
      return torch::full({5}, static_cast<double>(value), torch::Device(torch::kCUDA, 0));
    });
  }

  static double first(const PerReplica<torch::Tensor>& given) {
    return given.local_values()[0][0].item<double>();
  }

  std::optional<MirroredStrategy> strategy_;
};

TEST_F(NcclGpu, CollectivesOfOneRankGiveItsOwnValues) {
  for (int value = 1; value < 4; ++value)
    EXPECT_EQ(first(strategy_->run(&by_all_collectives, values(value))), 2 * value);
}

TEST_F(NcclGpu, CollectivesAreCapturedWithTheRestAsOneGraph) {
#ifndef LOCKSTEP_WITH_CUDA
  const int graphs = fake_gpu::captured_graphs();
#endif
  {
    CudaGraph graph(&by_all_collectives, {.warm_up_runs = 1});
    for (int value = 1; value < 7; ++value)
      EXPECT_EQ(first(strategy_->run(graph, values(value))), 2 * value) << "run " << value;
    EXPECT_EQ(graph.statistics().captures, 1);
    EXPECT_EQ(graph.statistics().replays, 4);
#ifndef LOCKSTEP_WITH_CUDA
    EXPECT_EQ(fake_gpu::captured_graphs(), graphs + 1);
#endif
    strategy_.reset();
  }
}

TEST_F(NcclGpu, ConnectsAnewAfterAFailedRunWithAndWithoutGraphs) {
  const auto fail = [](ReplicaContext& replica, const torch::Tensor& value) {
    replica.all_reduce(ReduceOp::kSum, value);
    throw std::domain_error("planted");
  };
  CudaGraph graph(&by_all_collectives, {.warm_up_runs = 1});
  for (int round = 0; round < 3; ++round) {
    for (int value = 1; value < 5; ++value)
      EXPECT_EQ(first(strategy_->run(graph, values(value))), 2 * value) << "round " << round;
    EXPECT_THROW(strategy_->run(fail, values(1)), std::domain_error);
    EXPECT_EQ(first(strategy_->run(&by_all_collectives, values(7))), 14);
  }
  EXPECT_EQ(graph.statistics().captures, 3) << "the communicator that a graph has kernels of is gone";
}

TEST_F(NcclGpu, StrategiesOfOneProcessHaveCommunicatorsOfTheirOwn) {
  MirroredStrategy other({"gpu:0"}, {.cross_device_ops = nccl_ops()});
  for (int value = 1; value < 4; ++value) {
    EXPECT_EQ(first(strategy_->run(&by_all_collectives, values(value))), 2 * value);
    EXPECT_EQ(first(other.run(&by_all_collectives, values(value + 10))), 2 * (value + 10));
  }
}

TEST_F(NcclGpu, TwoReplicasOfAGpuAreRefusedAtOnceWhereItIsAskedFor) {
  const auto make = [] {
    MirroredStrategy({"gpu:0"}, {.cross_device_ops = nccl_ops(), .replicas_per_device = 2});
  };
  const auto begin = std::chrono::steady_clock::now();
#ifdef LOCKSTEP_WITH_CUDA
  EXPECT_THAT(make, testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("gpu:0 has two")));
#else
  EXPECT_THAT(make, testing::ThrowsMessage<BackendError>(testing::HasSubstr("Duplicate GPU detected")));
#endif
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace lockstep
