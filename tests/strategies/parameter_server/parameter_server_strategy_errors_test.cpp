// Bad input to a ParameterServerStrategy, and its behaviour when a step or a server fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/served_tanh_training.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParameterServerStrategy, AStepsErrorReachesTheChief) {
  ParameterServerJob job({.num_workers = 2});
  job.start_workers([](ParameterServerStrategy& strategy) {
    strategy.define_step("train", [](const StepSlot& step) -> int64_t {
      if (step.step == 7) throw InvalidArgument("row 7 is missing");
      return step.step;
    });
    return 0;
  });
  job.chief().define_step("train", [](const StepSlot&) {});
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().run_steps("train", 0, 1'000, ignore); }),
              AllOf(HasSubstr("row 7 is missing"), HasSubstr("worker ")));
  int64_t steps = 0;
  job.chief().run_steps("train", 8, 20, [&](int64_t, const std::vector<ClosureValues>&) { ++steps; });
  EXPECT_EQ(steps, 12);
  // The chief's own error ends the waiting steps.
  const auto fail = [](int64_t step, const std::vector<ClosureValues>&) {
    if (step == 30) throw std::runtime_error("enough");
  };
  EXPECT_EQ(message_of<std::runtime_error>([&] { job.chief().run_steps("train", 20, 1'000'000, fail); }),
            "enough");
  EXPECT_TRUE(job.chief().coordinator().done());
  job.end();
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

TEST(ParameterServerStrategy, RefusesStrategyOptionsOfOtherStrategies) {
  const auto resolver =
      std::make_shared<SimpleClusterResolver>(ClusterSpec({{"chief", {{0, HostPort{"127.0.0.1", 1}}}},
                                                           {"worker", {{0, HostPort{"127.0.0.1", 2}}}},
                                                           {"ps", {{0, HostPort{"127.0.0.1", 3}}}}}),
                                              "chief", 0);
  const auto refused = [&](const StrategyOptions& options) {
    return message_of<InvalidArgument>([&] { ParameterServerStrategy(resolver, {"cpu"}, {}, options, {}); });
  };
  EXPECT_THAT(refused({.sharding = {.stage = 2}}), HasSubstr("expected no sharding, but got stage 2"));
  EXPECT_THAT(refused({.sharding = {.host_optimizer_state = true}}),
              HasSubstr("expected no host_optimizer_state: the parameter servers hold"));
  EXPECT_THAT(refused({.mesh = Mesh{{"data", 2}}}), HasSubstr("expected no mesh, but got data=2"));
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
  EXPECT_THAT(message_of<ClusterError>([&] { job.chief().run_steps("train", 0, kServedSteps, stop); }),
              HasSubstr("ps 1"));
  job.end();
}

TEST(ParameterServerStrategy, AServerThatComesBackEndsStepsThatAreMadeTogether) {
  ParameterServerJob job({.num_workers = 2, .parameters = {.max_staleness = 0}});
  const auto training = make_training(job.chief(), momentum_sgd());
  job.start_workers(
      [&](ParameterServerStrategy& strategy) { return make_training(strategy, momentum_sgd()); });
  // The server still has its values, but nobody can know that.
  const auto restart = [&](int64_t step, const std::vector<ClosureValues>&) {
    if (step == 2) job.restart_server(1);
  };
  EXPECT_THAT(message_of<PeerLost>([&] { job.chief().run_steps("train", 0, kServedSteps, restart); }),
              HasSubstr("a parameter server was lost at step 3"));
  job.end();
}

TEST(ParameterServerStrategy, AServerThatComesBackIsUsedOnByStepsOfTheirOwn) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), adam());
  ParameterServerJob job({.num_workers = 1, .parameters = {.looks_ahead = false}});
  const auto training = make_training(job.chief(), adam());
  job.start_workers([&](ParameterServerStrategy& strategy) { return make_training(strategy, adam()); });
  job.chief().run_steps("train", 0, kServedSteps, [&](int64_t step, const std::vector<ClosureValues>&) {
    if (step % 3 == 1) job.restart_server(static_cast<int>(step) % 2);
  });
  EXPECT_LT(largest_difference(served_values(job.chief(), *training), alone), 1e-12);
  job.end();
}

}  // namespace
}  // namespace lockstep
