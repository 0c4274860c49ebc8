// CudaGraph on the GPUs of several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/gpu/gpu_workers.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/runtime/cluster/job_token.h"
#include "lockstep/tests/support/worker_training.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

constexpr int kRuns = 12;

/// The results of a graph that is captured after one matching call.
struct Averages {
  std::vector<double> values;  // over all workers, for each run
  CudaGraphStatistics statistics;
};

void clipped_step(ReplicaContext& replica, TanhNet& model, FusedAdam& adam, const torch::Tensor& x) {
  adam.zero_grad();
  model(x).square().sum().backward();
  replica.apply_gradients(adam, {.clip_norm = 0.5});
}

torch::Tensor average_step(ReplicaContext& replica, const torch::Tensor& losses) {
  return compute_average_loss(replica, losses);
}

/// Runs two workers, in which replica r has `num_losses(run, r)` losses of `run + 10 r`.
std::vector<Averages> averages_of(
    const std::function<int64_t(int run, int replica)>& num_losses,
    const std::vector<std::vector<std::string>>& devices,
    const std::function<std::shared_ptr<CrossDeviceOps>()>& make_ops = nullptr) {
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
      [&](int rank, WorkerSetUp& set_up) {
        set_up.devices = devices[static_cast<size_t>(rank)];
        if (make_ops) set_up.options.cross_device_ops = make_ops();
      });
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

std::atomic<int> num_calls_of_worker_1{0};

/// A function that fails on worker 1 when it is called for the second time: for a capture, if one call comes
/// before that.
torch::Tensor sum_that_fails(ReplicaContext& replica, const torch::Tensor& losses) {
  const auto sum = replica.all_reduce(ReduceOp::kSum, losses);
  if (replica.replica_id() == 1 && ++num_calls_of_worker_1 == 2) throw std::domain_error("planted");
  return sum;
}

class WorkerGraphsOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_GPUS(2);
    forget_races();
  }
  void TearDown() override { expect_no_races(); }
};

/// Returns the weights after some steps on `num_workers` workers, each with a GPU of its own.
std::vector<std::vector<torch::Tensor>> trained_over_nccl(int num_workers, const CudaGraphOptions& options,
                                                          std::vector<CudaGraphStatistics>& statistics) {
  constexpr int kSteps = 10;
  std::vector<std::vector<torch::Tensor>> weights(static_cast<size_t>(num_workers));
  statistics.resize(weights.size());
  const auto start = initial_values();  // by one thread: they share a generator
  const auto errors = run_strategies(
      std::vector<int>(weights.size(), 1),
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
        auto model = strategy.scope([&](ReplicaContext&) { return tanh_net_of(start); });
        auto adam = strategy.scope(
            [&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 0.01); });
        CudaGraph step(clipped_step, options);
        for (int run = 0; run < kSteps; ++run) {
          const auto x = strategy.distribute_values_from_function([&](const ValueContext& context) {
            return torch::full({3, 6}, 0.1 * (run + context.replica_id_in_sync_group), torch::kDouble)
                .to(strategy.devices()[0].torch_device());
          });
          strategy.run(step, model, adam, x);
        }
        statistics[rank] = step.statistics();
        weights[rank] = on_host(model.primary()->parameters());
      },
      set_up_over_nccl);
  expect_no_worker_failed(errors);
  return weights;
}

class NumWorkersOverNccl : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Workers, NumWorkersOverNccl, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

TEST_P(NumWorkersOverNccl, TrainBitForBitAsCallsDo) {
  LOCKSTEP_NEEDS_GPUS(GetParam());
  forget_races();
  std::vector<CudaGraphStatistics> called;
  std::vector<CudaGraphStatistics> captured;
  const auto expected = trained_over_nccl(GetParam(), {.enabled = false}, called);
  const auto trained = trained_over_nccl(GetParam(), {.warm_up_runs = 3}, captured);
  for (size_t worker = 0; worker < trained.size(); ++worker) {
    EXPECT_TRUE(bit_equal(trained[worker], expected[worker])) << "worker " << worker;
    EXPECT_EQ(captured[worker].captures, 1);
    EXPECT_EQ(captured[worker].replays, 5);
  }
  expect_no_races();
}

TEST_F(WorkerGraphsOverNccl, AreReplayedByAllWorkersOrByNone) {
  // Worker 1 alone brings another shape in the seventh run.
  const auto averages = averages_of([](int run, int replica) { return replica == 1 && run == 6 ? 5 : 2; },
                                    {{"gpu:0"}, {"gpu:1"}}, nccl_ops);
  for (const auto& own : averages) {
    EXPECT_EQ(own.statistics.captures, 1);
    EXPECT_EQ(own.statistics.replays, kRuns - 1 - 1 - 1);
  }
}

TEST_F(WorkerGraphsOverNccl, AFailureInACaptureReachesTheOtherWorkers) {
  num_calls_of_worker_1 = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_strategies(
      {1, 1},
      [](MultiWorkerMirroredStrategy& strategy) {
        CudaGraph graph(sum_that_fails, {.warm_up_runs = 1});
        for (int run = 0; run < 4; ++run) {
          const auto losses = strategy.distribute_values_from_function(
              [&](const ValueContext&) { return torch::ones({2}).to(strategy.devices()[0].torch_device()); });
          strategy.run(graph, losses);
        }
      },
      set_up_over_nccl);
  EXPECT_TRUE(is_a<std::domain_error>(errors[1])) << text_of(errors[1]);
  EXPECT_THAT(text_of(errors[0]), testing::HasSubstr("planted"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

/// Environment variable with worker 0's address, for the program of worker 1.
constexpr const char* kMaster = "LOCKSTEP_TEST_MASTER";

int num_calls = 0;       // of the step below, in this process
int call_that_dies = 0;  // 0: none

void step_that_may_die(ReplicaContext& replica, TanhNet& model, FusedAdam& adam, const torch::Tensor& x) {
  adam.zero_grad();
  model(x).square().sum().backward();
  if (++num_calls == call_that_dies) std::raise(SIGKILL);
  replica.apply_gradients(adam);
}

/// Trains by a graph, which the last call of the step captures.
void train_by_graph(Strategy& strategy) {
  num_calls = 0;
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto adam =
      strategy.scope([&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 0.01); });
  CudaGraph step(step_that_may_die, {.warm_up_runs = 1});
  const auto x = strategy.distribute_values_from_function([](const ValueContext&) {
    return torch::ones({3, 6}, torch::TensorOptions(torch::kDouble).device(torch::kCUDA, 0));
  });
  for (int run = 0; run < kRuns; ++run) strategy.run(step, model, adam, x);
  EXPECT_EQ(step.statistics().captures, 1);
  EXPECT_EQ(step.statistics().replays, kRuns - num_calls);
}

/// Trains twice as one of two workers, and dies in the second training's capture if asked to.
void train_as_one_of_two(int rank, const std::string& master, std::optional<int> listening_socket,
                         bool dies) {
  StrategyOptions options{.intra_op_threads = 1, .timeout = std::chrono::seconds(60)};
  options.communication.implementation = CommunicationImplementation::kRing;  // works on any GPUs
  MultiWorkerMirroredStrategy strategy(
      std::make_shared<SimpleClusterResolver>(std::vector<std::string>{master, "127.0.0.1:1"}, rank),
      {"gpu:0"}, options,
      {.token = kJobToken, .listening_socket = listening_socket, .join_timeout = std::chrono::seconds(60)});
  train_by_graph(strategy);
  if (dies) call_that_dies = num_calls;
  train_by_graph(strategy);
}

TEST(WorkerGraphsInProcesses, TrainAsWorker1) {
  const char* master = std::getenv(kMaster);
  if (master == nullptr) GTEST_SKIP() << "it is the program that the next test starts and has killed";
  train_as_one_of_two(1, master, std::nullopt, /*dies=*/true);
}

/// Starts the program of worker 1. Returns its process, or -1.
pid_t start_worker_1(const std::string& master) {
  const std::string variable = c10::str(kMaster, "=", master);
  std::vector<const char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    // Those of GoogleTest are for this program, such as where it writes its report.
    if (!std::string_view(*entry).starts_with("GTEST_")) environment.push_back(*entry);
  }
  environment.insert(environment.end(), {variable.c_str(), nullptr});
  const std::vector<const char*> arguments{"gpu_test",
                                           "--gtest_filter=WorkerGraphsInProcesses.TrainAsWorker1", nullptr};
  pid_t process = -1;
  EXPECT_EQ(
      posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, const_cast<char* const*>(arguments.data()),
                  const_cast<char* const*>(environment.data())),
      0);
  return process;
}

TEST(WorkerGraphsInProcesses, AWorkerThatIsKilledInItsCaptureIsReportedToTheOthers) {
  LOCKSTEP_NEEDS_GPUS(1);
  TcpListener listener("127.0.0.1", 0);
  const std::string master = c10::str("127.0.0.1:", listener.port());
  const pid_t process = start_worker_1(master);
  ASSERT_GT(process, 0);
  int status = 0;
  std::chrono::steady_clock::time_point killed;
  std::thread waiter([&] {
    waitpid(process, &status, 0);
    killed = std::chrono::steady_clock::now();
  });
  std::exception_ptr error;
  try {
    train_as_one_of_two(0, master, listener.release(), /*dies=*/false);
  } catch (...) {
    error = std::current_exception();
  }
  const auto reported = std::chrono::steady_clock::now();
  if (!is_a<PeerLost>(error)) kill(process, SIGTERM);  // it may be waiting for this one
  waiter.join();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_TRUE(is_a<PeerLost>(error)) << text_of(error);
  EXPECT_THAT(text_of(error), testing::HasSubstr("worker 1"));
  EXPECT_LT(reported - killed, std::chrono::seconds(20));
}

}  // namespace
}  // namespace lockstep
