// MultiWorkerMirroredStrategy with a GPU for each worker, through the host and over NCCL. The workers are
// threads of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/tests/gpu/gpu_workers.h"
#include "lockstep/tests/support/worker_training.h"

namespace lockstep {
namespace {

class WorkersOnGpus : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_GPUS(2);
    forget_races();
  }
  void TearDown() override { expect_no_races(); }

  /// Gives each of two workers its own GPU.
  static void set_up(int rank, WorkerSetUp& worker) {
    set_up_over_nccl(rank, worker);
    if (GetParam() == "nccl") return;
    worker.options.cross_device_ops = nullptr;
    worker.options.communication.implementation = CommunicationImplementation::kRing;
  }
  static void run_two(const std::function<void(MultiWorkerMirroredStrategy&)>& work) {
    expect_no_worker_failed(run_strategies({1, 1}, work, set_up));
  }
};

INSTANTIATE_TEST_SUITE_P(Communication, WorkersOnGpus, testing::Values("ring", "nccl"),
                         [](const auto& info) { return info.param; });

TEST_P(WorkersOnGpus, EqualLibTorchAloneOnTheCpu) {
  const auto start = initial_values();
  const auto trained = trained_by_workers({.num_replicas = {1, 1}, .start = start, .change = set_up});
  const auto expected =
      trained_alone<TanhNet>([&] { return tanh_net_of(start); }, examples_of_three_classes(), momentum_sgd());
  EXPECT_LT(largest_difference(trained, expected), 1e-12);
}

TEST_P(WorkersOnGpus, CollectivesCarryTensorsOfTheGpus) {
  run_two([](MultiWorkerMirroredStrategy& strategy) {
    const auto rows = strategy.run([](ReplicaContext& replica) {
      const auto own = torch::full({replica.replica_id() + 1}, replica.replica_id() + 1.0, replica.device());
      const auto sum = replica.all_reduce(ReduceOp::kSum, own.sum());
      return replica.all_gather(own) + sum;
    });
    EXPECT_TRUE(rows.local_values()[0].cpu().equal(torch::tensor({6.0F, 7.0F, 7.0F})));
    EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kMean, rows, 0).item<float>(), 20.0F / 3);
  });
}

torch::Tensor scaled_sum(ReplicaContext& replica, const torch::Tensor& value) {
  return replica.all_reduce(ReduceOp::kSum, value * 2) + 1;
}

TEST_P(WorkersOnGpus, CapturedFunctionsGiveWhatCallsGive) {
  run_two([](MultiWorkerMirroredStrategy& strategy) {
    CudaGraph graph(&scaled_sum, {.warm_up_runs = 1});
    for (int run = 1; run < 6; ++run) {
      const auto values = strategy.distribute_values_from_function([&](const ValueContext& context) {
        return torch::full({4}, static_cast<double>(run + context.replica_id_in_sync_group),
                           strategy.devices()[0].torch_device());
      });
      const auto sums = strategy.run(graph, values);
      EXPECT_EQ(sums.local_values()[0][3].item<double>(), 2.0 * (run + run + 1) + 1) << "run " << run;
    }
    EXPECT_EQ(graph.statistics().captures, 1);
    EXPECT_EQ(graph.statistics().replays, 3);
  });
}

#ifdef LOCKSTEP_WITH_CUDA

TEST(WorkersOnGpusByDefault, TakeNccl) {
  LOCKSTEP_NEEDS_GPUS(2);
  for (const auto& error : run_strategies(
           {1, 1},
           [](MultiWorkerMirroredStrategy&strategy) {
             EXPECT_THAT(strategy.describe(),
                         testing::HasSubstr("NcclAllReduce (every replica has a GPU of its own)"));
           },
           [](int rank, WorkerSetUp&set_up) { set_up.devices = {"gpu:" + std::to_string(rank)}; }))
    EXPECT_EQ(text_of(error), "none");
}

TEST(WorkersOnGpusByDefault, TakeTheRingWhereTheyShareAGpu) {
  LOCKSTEP_NEEDS_GPUS(1);
  for (const auto& error : run_strategies(
           {1, 1},
           [](MultiWorkerMirroredStrategy& strategy) {
             EXPECT_THAT(strategy.describe(), testing::HasSubstr("shares a GPU with another worker"));
           },
           [](int, WorkerSetUp& set_up) { set_up.devices = {"gpu:0"}; }))
    EXPECT_EQ(text_of(error), "none");
}

#endif

}  // namespace
}  // namespace lockstep
