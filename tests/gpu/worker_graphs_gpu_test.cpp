// CudaGraph on the GPUs of several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

constexpr int kRuns = 12;

/// The results of a graph that is captured after one matching call.
struct Averages {
  std::vector<double> values;  // over all workers, for each run
  CudaGraphStatistics statistics;
};

torch::Tensor average_step(ReplicaContext& replica, const torch::Tensor& losses) {
  return compute_average_loss(replica, losses);
}

/// Runs two workers, in which replica r has `num_losses(run, r)` losses of `run + 10 r`.
std::vector<Averages> averages_of(const std::function<int64_t(int run, int replica)>& num_losses,
                                  const std::vector<std::vector<std::string>>& devices) {
  std::vector<Averages> averages(2);
  const auto errors = run_strategies(
      {1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        auto& own = averages[static_cast<size_t>(strategy.cluster_resolver()->rank())];
        CudaGraph graph(average_step, {.warm_up_runs = 1});
        for (int run = 0; run < kRuns; ++run) {
          const auto losses = strategy.distribute_values_from_function([&](const ValueContext& context) {
            const int replica = context.replica_id_in_sync_group;
            return torch::full({num_losses(run, replica)}, run + 10.0 * replica, torch::kDouble)
                .to(strategy.devices()[0].torch_device());
          });
          own.values.push_back(strategy.reduce(ReduceOp::kSum, strategy.run(graph, losses)).item<double>());
        }
        own.statistics = graph.statistics();
      },
      [&](int rank, WorkerSetUp& set_up) { set_up.devices = devices[static_cast<size_t>(rank)]; });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  for (int run = 0; run < kRuns; ++run) {
    const auto first = static_cast<double>(num_losses(run, 0));
    const auto second = static_cast<double>(num_losses(run, 1));
    const double expected = (first * run + second * (run + 10)) / (first + second);
    for (const auto& own : averages)
      EXPECT_DOUBLE_EQ(own.values.at(static_cast<size_t>(run)), expected) << run;
  }
  return averages;
}

// The number of losses is summed on the host, which a replay does not repeat.
TEST(WorkerGpus, ReplayAGraphOnlyWhereAllWorkersBringWhatTheyDidAtItsCapture) {
  LOCKSTEP_NEEDS_GPUS(1);
  // Worker 0 always brings as many losses; worker 1 more from the fifth run on, and as at first in the last
  // run.
  const auto averages =
      averages_of([](int run, int replica) { return replica == 0                  ? 2
                                                    : run < 4 || run == kRuns - 1 ? 3
                                                                                  : 5; },
                  {{"gpu:0"}, {"gpu:0"}});
  for (const auto& own : averages) {
    EXPECT_EQ(own.statistics.captures, 2);
    EXPECT_EQ(own.statistics.replays, 2 + 5);
  }
}

TEST(WorkerGpus, CallTheFunctionWhereAnotherWorkerHasNoGraphs) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto averages = averages_of([](int, int replica) { return replica + 2; }, {{"gpu:0"}, {"cpu:0"}});
  for (const auto& own : averages) EXPECT_EQ(own.statistics.captures, 0);
}

}  // namespace
}  // namespace lockstep
