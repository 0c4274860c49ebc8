#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/tests/runtime/cluster/job_token.h"
#include "lockstep/tests/support/served_tanh_training.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

struct Trained {
  std::vector<torch::Tensor> parameters;
  std::vector<int64_t> steps;
  UpdateCounts counts;
};

Trained trained_by_servers(const ParameterServerJob::Options& options, const MakeOptimizer& make) {
  ParameterServerJob job(options);
  const auto training = make_training(job.chief(), make);
  job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, make); });
  Trained trained;
  job.chief().run_steps("train", 0, kServedSteps,
                        [&](int64_t step, const std::vector<ClosureValues>& values) {
                          EXPECT_EQ(values.size(), static_cast<size_t>(job.chief().slots_per_step()));
                          for (const auto& value : values) EXPECT_EQ(std::get<int64_t>(value.at(0)), step);
                          trained.steps.push_back(step);
                        });
  trained.parameters = served_values(job.chief(), *training);
  trained.counts = job.chief().update_counts();
  job.end();
  return trained;
}

/// Numbers of workers, replicas of each, and servers.
class TogetherTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(TogetherTest, StalenessZeroEqualsTrainingAlone) {
  const auto [workers, replicas, servers] = GetParam();
  const auto data = examples_of_three_classes();
  for (const auto& make : {momentum_sgd(), adagrad(), adam()}) {
    const auto alone = trained_alone<TanhNet>(make_tanh_net, data, make);
    const auto trained = trained_by_servers({.num_servers = servers,
                                             .num_workers = workers,
                                             .replicas_per_worker = replicas,
                                             .parameters = {.max_staleness = 0}},
                                            make);
    EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
    EXPECT_EQ(trained.steps.size(), static_cast<size_t>(kServedSteps));
    EXPECT_THAT(trained.counts.staleness, ElementsAre(Pair(0, kServedSteps)));
  }
}

INSTANTIATE_TEST_SUITE_P(ParameterServerStrategy, TogetherTest,
                         ::testing::Values(std::tuple(1, 1, 1), std::tuple(2, 1, 2), std::tuple(3, 1, 2),
                                           std::tuple(2, 2, 3)));

TEST(ParameterServerStrategy, StalenessZeroGivesTheSameBitsInEachRun) {
  const ParameterServerJob::Options options{.num_workers = 3, .parameters = {.max_staleness = 0}};
  const auto first = trained_by_servers(options, adam());
  const auto second = trained_by_servers(options, adam());
  for (size_t i = 0; i < first.parameters.size(); ++i)
    EXPECT_TRUE(first.parameters[i].equal(second.parameters[i]));
}

TEST(ParameterServerStrategy, AsManySlotsAsAskedForMakeAStep) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), adagrad());
  // Two workers compute four slots, one of which is empty in the last step of an epoch.
  const auto trained = trained_by_servers(
      {.num_workers = 2, .parameters = {.max_staleness = 0, .slots_per_step = 4}}, adagrad());
  EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
}

TEST(ParameterServerStrategy, AWorkerThatIsAloneAndDoesNotLookAheadIsNeverStale) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), adam());
  const auto trained = trained_by_servers({.num_workers = 1, .parameters = {.looks_ahead = false}}, adam());
  EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
  EXPECT_THAT(trained.counts.staleness, ElementsAre(Pair(0, kServedSteps)));
}

TEST(ParameterServerStrategy, AWorkerThatLooksAheadIsStaleByTwoOfItsOwnStepsAtMost) {
  const auto trained = trained_by_servers({.num_workers = 1}, adam());
  int64_t updates = 0;
  for (const auto& [staleness, count] : trained.counts.staleness) {
    EXPECT_LE(staleness, 2U);
    updates += count;
  }
  EXPECT_EQ(updates, kServedSteps);
}

TEST(ParameterServerStrategy, AnEvaluationReadsWhatTheServersHaveAndChangesNothing) {
  for (const std::optional<uint64_t> staleness : {std::optional<uint64_t>(0), std::optional<uint64_t>()}) {
    ParameterServerJob job({.num_workers = 2, .parameters = {.max_staleness = staleness}});
    const auto training = make_training(job.chief(), adam());
    job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
    const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
    job.chief().run_steps("train", 0, kServedSteps, ignore);
    const auto before = served_values(job.chief(), *training);
    double sum = 0;
    job.chief().run_steps("examples", 0, kServedStepsPerEpoch,
                          [&](int64_t, const std::vector<ClosureValues>& slots) {
                            EXPECT_EQ(slots.size(), static_cast<size_t>(job.chief().slots_per_step()));
                            for (const auto& values : slots)
                              sum += std::get<torch::Tensor>(values.at(0)).item<double>();
                          });
    EXPECT_EQ(largest_difference(served_values(job.chief(), *training), before), 0);
    const auto losses = example_losses(training->model.local_values()[0], examples_of_three_classes());
    EXPECT_NEAR(sum, losses.sum().item<double>(), 1e-12);
    // The steps continue where they stopped.
    job.chief().run_steps("train", kServedSteps, kServedSteps + 1, ignore);
    EXPECT_GT(largest_difference(served_values(job.chief(), *training), before), 0);
    job.end();
  }
}

TEST(ParameterServerStrategy, TellsWhatWorkersHaveDoneWithTheirTime) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kComputing = std::chrono::milliseconds(20);
  constexpr auto kBetween = std::chrono::milliseconds(1000);
  ParameterServerJob job({.num_workers = 1, .parameters = {.max_staleness = 0}});
  job.start_workers([&](ParameterServerStrategy& strategy) {
    strategy.define_step("sleep", [&](const StepSlot&) { std::this_thread::sleep_for(kComputing); });
    return 0;
  });
  job.chief().define_step("sleep", [](const StepSlot&) {});
  std::chrono::duration<double> in_runs{};
  const auto run = [&](int64_t begin, int64_t end, std::chrono::milliseconds on_step) {
    const auto began = Clock::now();
    job.chief().run_steps("sleep", begin, end, [&](int64_t, const std::vector<ClosureValues>&) {
      std::this_thread::sleep_for(on_step);
    });
    in_runs += Clock::now() - began;
  };
  run(0, 10, std::chrono::milliseconds(0));
  std::this_thread::sleep_for(kBetween);
  run(10, 20, std::chrono::milliseconds(30));  // one step at a time: the worker has nothing to do meanwhile
  const auto& times = job.chief().worker_times();
  EXPECT_GE(times.computing, 0.4);
  EXPECT_GE(times.idle, 9 * 0.03);
  EXPECT_LE(times.total(), in_runs.count()) << "between two runs no worker is idle";
  EXPECT_LT(times.waiting, times.computing);  // there is almost nothing to wait for
  job.end();
}

TEST(ParameterServerStrategy, StalenessStaysWithinItsBound) {
  for (const std::optional<uint64_t> bound : {std::optional<uint64_t>(1), std::optional<uint64_t>()}) {
    const auto trained =
        trained_by_servers({.num_workers = 3, .parameters = {.max_staleness = bound}}, momentum_sgd());
    int64_t updates = 0;
    for (const auto& [staleness, count] : trained.counts.staleness) {
      updates += count;
      if (bound) {
        EXPECT_LE(staleness, *bound);
      }
    }
    EXPECT_EQ(updates, kServedSteps);
    for (int64_t step = 0; step < kServedSteps; ++step)
      EXPECT_EQ(trained.steps.at(static_cast<size_t>(step)), step);
  }
}

TEST(ParameterServerStrategy, AStepIsAppliedOnce) {
  ParameterServerJob job({.num_workers = 2});
  const auto training = make_training(job.chief(), adam());
  job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  job.chief().run_steps("train", 0, kServedSteps, ignore);
  const auto once = served_values(job.chief(), *training);
  EXPECT_EQ(job.chief().update_counts().num_repeated, 0);
  job.chief().run_steps("train", 0, kServedSteps, ignore);
  EXPECT_EQ(job.chief().update_counts().num_repeated, kServedSteps);
  EXPECT_EQ(largest_difference(served_values(job.chief(), *training), once), 0);
  job.chief().run_steps("train", kServedSteps, kServedSteps + 1, ignore);
  EXPECT_GT(largest_difference(served_values(job.chief(), *training), once), 0);
  job.end();
}

TEST(ParameterServerStrategy, VariablesBeginWithTheChiefsValues) {
  ParameterServerJob job({.num_servers = 3, .num_workers = 1});
  const auto training = make_training(job.chief(), momentum_sgd());
  EXPECT_EQ(job.chief().variable_counts().num_new, 4);  // none is large enough to be cut
  EXPECT_EQ(job.chief().variable_counts().num_restored, 0);
  const auto own = values_of(training->model.primary()->parameters());
  const auto worker = job.make("worker", 0);
  auto other = worker->scope([](ReplicaContext&) {
    torch::manual_seed(99);
    return make_tanh_net();
  });
  auto optimizer =
      worker->scope([&](ReplicaContext& replica) { return momentum_sgd()(other[replica]->parameters()); });
  EXPECT_GT(largest_difference(values_of(other.primary()->parameters()), own), 0);
  worker->run([](ReplicaContext&, TanhNet&) {}, other);
  EXPECT_EQ(largest_difference(values_of(other.primary()->parameters()), own), 0);
  EXPECT_THAT(job.service(1).shard_names(), ElementsAre("first.bias"));
  EXPECT_EQ(worker->variable_counts().num_new, 0);
}

/// Returns the random numbers that a job draws in its steps.
std::vector<double> drawn(int workers, int replicas) {
  ParameterServerJob job(
      {.num_workers = workers, .replicas_per_worker = replicas, .parameters = {.max_staleness = 0}});
  const auto define = [](ParameterServerStrategy& strategy) {
    strategy.define_step("draw", [&strategy](const StepSlot&) {
      const auto values = strategy.run(
          [](ReplicaContext& replica) { return torch::rand({}, torch::kDouble) + replica.replica_id(); });
      return torch::stack(values.local_values());
    });
    return 0;
  };
  define(job.chief());
  job.start_workers(define);
  std::vector<double> numbers;
  job.chief().run_steps("draw", 0, 5, [&](int64_t, const std::vector<ClosureValues>& values) {
    for (const auto& of_slot : values) {
      const auto& of_replicas = std::get<torch::Tensor>(of_slot.at(0));
      for (int64_t i = 0; i < of_replicas.numel(); ++i) numbers.push_back(of_replicas[i].item<double>());
    }
  });
  job.end();
  return numbers;
}

TEST(ParameterServerStrategy, RandomNumbersDependOnTheStepAndTheReplicaAlone) {
  const auto of_one = drawn(1, 4);
  EXPECT_EQ(of_one, drawn(2, 2));
  EXPECT_EQ(of_one, drawn(4, 1));
  EXPECT_EQ(std::set<double>(of_one.begin(), of_one.end()).size(), 20U);
}

TEST(ParameterServerStrategy, WorkersOfOneMachineShareItsCores) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores < 2) GTEST_SKIP() << "needs two cores: one is nobody's to share";
  const ParameterServerJob job({.num_servers = 1, .num_workers = 2});
  auto elsewhere = job.spec().jobs();
  elsewhere["worker"][1].host = "127.0.0.2";
  const auto threads_of = [](const ClusterSpec& spec) {
    const ClusterOptions cluster{.token = kJobToken};
    ParameterServerStrategy worker(std::make_shared<SimpleClusterResolver>(spec, "worker", 0), {"cpu:0"}, {},
                                   {}, cluster);
    return worker.run([](ReplicaContext&) { return at::get_num_threads(); }).local_values().front();
  };
  EXPECT_EQ(threads_of(job.spec()), cores / 2);
  EXPECT_EQ(threads_of(ClusterSpec(elsewhere)), cores);
}

}  // namespace
}  // namespace lockstep
