#include "lockstep/strategies/parameter_server_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/tests/strategies/message_of.h"
#include "lockstep/tests/strategies/one_device_equivalence.h"
#include "lockstep/tests/strategies/parameter_server_job.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int64_t kStepsPerEpoch = (kExamples + kBatchSize - 1) / kBatchSize;
constexpr int64_t kSteps = kEpochs * kStepsPerEpoch;

/// A process's part of the training that trained_alone() does.
struct TanhTraining {
  TanhTraining(ParameterServerStrategy& strategy, const MakeOptimizer& make_optimizer)
      : model(strategy.scope([](ReplicaContext&) {
          torch::manual_seed(17);
          return make_tanh_net();
        })),
        optimizer(strategy.scope(
            [&](ReplicaContext& replica) { return make_optimizer(model[replica]->parameters()); })) {
    const auto data = examples_of_three_classes();
    const auto batches =
        strategy.step_batches(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
    strategy.define_step("train", batches,
                         [&strategy, this](const StepSlot& step, PerReplica<Example>& batch) {
                           strategy.run(plain_step<TanhNet>, model, optimizer, batch);
                           return step.step;
                         });
    strategy.define_step("examples", batches,
                         [&strategy, this](const StepSlot&, PerReplica<Example>& batch) {
                           const torch::NoGradGuard no_grad;
                           return strategy.reduce(
                               ReduceOp::kSum, strategy.run(
                                                   [](ReplicaContext&, TanhNet& net, const Example& shard) {
                                                     return example_losses(net, shard).sum();
                                                   },
                                                   model, batch));
                         },
                         {.only_reads = true});
  }

  Mirrored<TanhNet> model;
  Mirrored<OptimizerPointer> optimizer;
};

/// In a job of threads the random state is all of theirs, so that the models are made one after another.
std::shared_ptr<TanhTraining> make_training(ParameterServerStrategy& strategy, const MakeOptimizer& make) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  return std::make_shared<TanhTraining>(strategy, make);
}

/// The servers' values, as the chief's model has them after a run that only looks at it.
std::vector<torch::Tensor> served_values(ParameterServerStrategy& chief, TanhTraining& training) {
  chief.run([](ReplicaContext&, TanhNet&) {}, training.model);
  return values_of(training.model.primary()->parameters());
}

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
  job.chief().run_steps("train", 0, kSteps, [&](int64_t step, const std::vector<ClosureValues>& values) {
    EXPECT_EQ(values.size(), static_cast<size_t>(job.chief().slots_per_step()));
    for (const auto& value : values) EXPECT_EQ(std::get<int64_t>(value.at(0)), step);
    trained.steps.push_back(step);
  });
  trained.parameters = served_values(job.chief(), *training);
  trained.counts = job.chief().update_counts();
  job.end();
  return trained;
}

MakeOptimizer adagrad() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(0.1));
  };
}

MakeOptimizer adam() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  };
}

/// Workers, replicas of each, servers.
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
    EXPECT_EQ(trained.steps.size(), static_cast<size_t>(kSteps));
    EXPECT_THAT(trained.counts.staleness, ElementsAre(Pair(0, kSteps)));
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
  // Two workers compute four slots, one of which has nothing in the last step of an epoch.
  const auto trained = trained_by_servers(
      {.num_workers = 2, .parameters = {.max_staleness = 0, .slots_per_step = 4}}, adagrad());
  EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
}

TEST(ParameterServerStrategy, AWorkerThatIsAloneAndDoesNotLookAheadIsNeverStale) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), adam());
  const auto trained = trained_by_servers({.num_workers = 1, .parameters = {.looks_ahead = false}}, adam());
  EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
  EXPECT_THAT(trained.counts.staleness, ElementsAre(Pair(0, kSteps)));
}

TEST(ParameterServerStrategy, AWorkerThatLooksAheadIsStaleByTwoOfItsOwnStepsAtMost) {
  const auto trained = trained_by_servers({.num_workers = 1}, adam());
  int64_t updates = 0;
  for (const auto& [staleness, count] : trained.counts.staleness) {
    EXPECT_LE(staleness, 2U);
    updates += count;
  }
  EXPECT_EQ(updates, kSteps);
}

TEST(ParameterServerStrategy, AnEvaluationReadsWhatTheServersHaveAndChangesNothing) {
  for (const std::optional<uint64_t> staleness : {std::optional<uint64_t>(0), std::optional<uint64_t>()}) {
    ParameterServerJob job({.num_workers = 2, .parameters = {.max_staleness = staleness}});
    const auto training = make_training(job.chief(), adam());
    job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
    const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
    job.chief().run_steps("train", 0, kSteps, ignore);
    const auto before = served_values(job.chief(), *training);
    double sum = 0;
    job.chief().run_steps("examples", 0, kStepsPerEpoch,
                          [&](int64_t, const std::vector<ClosureValues>& slots) {
                            EXPECT_EQ(slots.size(), static_cast<size_t>(job.chief().slots_per_step()));
                            for (const auto& values : slots)
                              sum += std::get<torch::Tensor>(values.at(0)).item<double>();
                          });
    EXPECT_EQ(largest_difference(served_values(job.chief(), *training), before), 0);
    const auto losses = example_losses(training->model.local_values()[0], examples_of_three_classes());
    EXPECT_NEAR(sum, losses.sum().item<double>(), 1e-12);
    // The steps go on where they were.
    job.chief().run_steps("train", kSteps, kSteps + 1, ignore);
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
  EXPECT_LT(times.waiting, times.computing);  // for nearly nothing
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
    EXPECT_EQ(updates, kSteps);
    for (int64_t step = 0; step < kSteps; ++step)
      EXPECT_EQ(trained.steps.at(static_cast<size_t>(step)), step);
  }
}

TEST(ParameterServerStrategy, AStepIsAppliedOnce) {
  ParameterServerJob job({.num_workers = 2});
  const auto training = make_training(job.chief(), adam());
  job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  job.chief().run_steps("train", 0, kSteps, ignore);
  const auto once = served_values(job.chief(), *training);
  EXPECT_EQ(job.chief().update_counts().num_repeated, 0);
  job.chief().run_steps("train", 0, kSteps, ignore);
  EXPECT_EQ(job.chief().update_counts().num_repeated, kSteps);
  EXPECT_EQ(largest_difference(served_values(job.chief(), *training), once), 0);
  job.chief().run_steps("train", kSteps, kSteps + 1, ignore);
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

/// What a job draws in its steps.
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

TEST(ParameterServerStrategy, AStepsErrorReachesTheChief) {
  ParameterServerJob job({.num_workers = 2});
  job.start_workers([](ParameterServerStrategy& strategy) {
    strategy.define_step("train", [](const StepSlot& step) -> int64_t {
      if (step.step == 7) throw InvalidArgument("row 7 is none");
      return step.step;
    });
    return 0;
  });
  job.chief().define_step("train", [](const StepSlot&) {});
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().run_steps("train", 0, 1'000, ignore); }),
              AllOf(HasSubstr("row 7 is none"), HasSubstr("worker ")));
  int64_t steps = 0;
  job.chief().run_steps("train", 8, 20, [&](int64_t, const std::vector<ClosureValues>&) { ++steps; });
  EXPECT_EQ(steps, 12);
  // The chief's own error ends the steps that wait.
  const auto fail = [](int64_t step, const std::vector<ClosureValues>&) {
    if (step == 30) throw std::runtime_error("enough");
  };
  EXPECT_EQ(message_of<std::runtime_error>([&] { job.chief().run_steps("train", 20, 1'000'000, fail); }),
            "enough");
  EXPECT_TRUE(job.chief().coordinator().done());
  job.end();
}

TEST(ParameterServerStrategy, WorkersOfOneMachineShareItsCores) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores < 2) GTEST_SKIP() << "needs two cores: one is nobody's to share";
  const ParameterServerJob job({.num_servers = 1, .num_workers = 2});
  auto elsewhere = job.spec().jobs();
  elsewhere["worker"][1].host = "127.0.0.2";
  const auto threads_of = [](const ClusterSpec& spec) {
    ClusterOptions cluster;
    cluster.token = "secret";
    ParameterServerStrategy worker(std::make_shared<SimpleClusterResolver>(spec, "worker", 0), {"cpu:0"}, {},
                                   {}, cluster);
    return worker.run([](ReplicaContext&) { return at::get_num_threads(); }).local_values().front();
  };
  EXPECT_EQ(threads_of(job.spec()), cores / 2);
  EXPECT_EQ(threads_of(ClusterSpec(elsewhere)), cores);
}

TEST(ParameterServerStrategy, RefusesWhatItCannotDo) {
  ParameterServerJob job({.num_workers = 2, .parameters = {.max_staleness = 0}});
  const auto training = make_training(job.chief(), momentum_sgd());
  const auto data = examples_of_three_classes();
  auto batches =
      job.chief().distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = 13});
  for (const auto& batch : batches) {
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  job.chief().run(plain_step<TanhNet>, training->model, training->optimizer, batch);
                }),
                HasSubstr("inside the function of define_step()"));
  }
  job.start_workers([&](ParameterServerStrategy& strategy) {
    auto worker = make_training(strategy, momentum_sgd());
    const auto with_options = [&strategy, worker](const std::string& name, const ApplyOptions& options,
                                                  int applications = 1) {
      strategy.define_step(name, [&strategy, worker, options, applications](const StepSlot&) {
        strategy.run(
            [&](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer) {
              model(torch::ones({2, 6}, torch::kDouble)).sum().backward();
              for (int i = 0; i < applications; ++i) replica.apply_gradients(*optimizer, options);
            },
            worker->model, worker->optimizer);
      });
    };
    with_options("clip", {.clip_norm = 1.0});
    with_options("twice", {}, 2);
    strategy.define_step("reduce", [&strategy](const StepSlot&) {
      strategy.run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones(1)); });
    });
    return worker;
  });
  const auto refused = [&](const std::string& name) {
    job.chief().define_step(name, [](const StepSlot&) {});
    return message_of<InvalidArgument>(
        [&] { job.chief().run_steps(name, 0, 1, [](int64_t, const std::vector<ClosureValues>&) {}); });
  };
  EXPECT_THAT(refused("clip"), HasSubstr("expected no clip_norm with 2 slots per step"));
  EXPECT_THAT(refused("twice"), HasSubstr("'first.weight' has two"));
  EXPECT_THAT(refused("reduce"), HasSubstr("a step whose replicas run at different times"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().run_steps("clip", 3, 2, {}); }),
              HasSubstr("expected steps from 0 on, but got 3 to 2"));
  job.end();
}

TEST(ParameterServerStrategy, AServerThatIsLostEndsStepsThatAreMadeTogether) {
  ParameterServerJob job(
      {.num_workers = 2, .join_timeout = std::chrono::seconds(1), .parameters = {.max_staleness = 0}});
  const auto training = make_training(job.chief(), momentum_sgd());
  job.start_workers(
      [&](ParameterServerStrategy& strategy) { return make_training(strategy, momentum_sgd()); });
  const auto stop = [&](int64_t step, const std::vector<ClosureValues>&) {
    if (step == 2) job.stop_server(1);
  };
  EXPECT_THAT(message_of<ClusterError>([&] { job.chief().run_steps("train", 0, kSteps, stop); }),
              HasSubstr("ps 1"));
  job.end();
}

TEST(ParameterServerStrategy, AServerThatComesBackEndsStepsThatAreMadeTogether) {
  ParameterServerJob job({.num_workers = 2, .parameters = {.max_staleness = 0}});
  const auto training = make_training(job.chief(), momentum_sgd());
  job.start_workers(
      [&](ParameterServerStrategy& strategy) { return make_training(strategy, momentum_sgd()); });
  // It has its values still, which nobody can know.
  const auto restart = [&](int64_t step, const std::vector<ClosureValues>&) {
    if (step == 2) job.restart_server(1);
  };
  EXPECT_THAT(message_of<PeerLost>([&] { job.chief().run_steps("train", 0, kSteps, restart); }),
              HasSubstr("a parameter server was lost at step 3"));
  job.end();
}

TEST(ParameterServerStrategy, AServerThatComesBackIsUsedOnByStepsOfTheirOwn) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), adam());
  ParameterServerJob job({.num_workers = 1, .parameters = {.looks_ahead = false}});
  const auto training = make_training(job.chief(), adam());
  job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
  job.chief().run_steps("train", 0, kSteps, [&](int64_t step, const std::vector<ClosureValues>&) {
    if (step % 3 == 1) job.restart_server(static_cast<int>(step) % 2);
  });
  EXPECT_LT(largest_difference(served_values(job.chief(), *training), alone), 1e-12);
  job.end();
}

}  // namespace
}  // namespace lockstep
