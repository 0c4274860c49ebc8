// CudaGraph: gradients and steps that extend beyond a captured function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/failing_ops.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const torch::Device kGpu(torch::kCUDA, 0);

Mirrored<torch::nn::Linear> make_linear(Strategy& strategy) {
  torch::manual_seed(3);
  return strategy.scope([](ReplicaContext&) { return torch::nn::Linear(4, 2); });
}

/// A linear layer under Adam.
struct LinearTraining {
  explicit LinearTraining(int replicas, std::shared_ptr<CrossDeviceOps> ops = nullptr)
      : strategy({"gpu:0"}, {.cross_device_ops = std::move(ops), .replicas_per_device = replicas}),
        model(make_linear(strategy)),
        adam(strategy.scope(
            [&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 0.1); })) {}

  std::vector<torch::Tensor> weights() const { return on_host(model.primary()->parameters()); }

  MirroredStrategy strategy;
  Mirrored<torch::nn::Linear> model;
  Mirrored<FusedAdam> adam;
};

PerReplica<torch::Tensor> rows(Strategy& strategy, int step) {
  return strategy.distribute_values_from_function([&](const ValueContext& context) {
    return torch::full({3, 4}, 0.1 * (step + context.replica_id_in_sync_group), kGpu);
  });
}

void backward(ReplicaContext&, torch::nn::Linear& model, const torch::Tensor& x) {
  model->forward(x).square().sum().backward();
}

void step_and_zero(ReplicaContext& replica, FusedAdam& adam) {
  replica.apply_gradients(adam);
  adam.zero_grad();
}

void backward_and_step(ReplicaContext& replica, torch::nn::Linear& model, FusedAdam& adam,
                       const torch::Tensor& x) {
  backward(replica, model, x);
  step_and_zero(replica, adam);
}

/// The weights after some steps; with graphs and without them they must be equal.
template <typename Train>
void expect_equal_with_and_without_graphs(const Train& train) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const auto called = train(CudaGraphOptions{.enabled = false});
  const auto captured = train(CudaGraphOptions{.warm_up_runs = 1});
  EXPECT_TRUE(bit_equal(captured, called));
  expect_no_races();
}

TEST(CudaGraphGradients, OfOneReplicaMayBeUsedByAnotherRun) {
  expect_equal_with_and_without_graphs([](const CudaGraphOptions& options) {
    LinearTraining training(1);
    auto& [strategy, model, adam] = training;
    CudaGraph graph(backward, options);
    for (int step = 0; step < 10; ++step) {
      strategy.run(graph, model, rows(strategy, step));
      strategy.run(step_and_zero, adam);
    }
    EXPECT_EQ(graph.statistics().replays > 0, options.enabled);
    return training.weights();
  });
}

TEST(CudaGraphGradients, OfEarlierRunsAreAddedTo) {
  expect_equal_with_and_without_graphs([](const CudaGraphOptions& options) {
    LinearTraining training(1);
    auto& [strategy, model, adam] = training;
    CudaGraph last(backward_and_step, options);
    for (int step = 0; step < 12; ++step) {
      // Calls compute two parts of a batch; the graph computes the third and the step.
      for (int part = 0; part < 2; ++part) strategy.run(backward, model, rows(strategy, step + part));
      strategy.run(last, model, adam, rows(strategy, step + 2));
    }
    return training.weights();
  });
}

TEST(CudaGraphGradients, AreUsedWhereTheyAreByAStepOfItsOwn) {
  expect_equal_with_and_without_graphs([](const CudaGraphOptions& options) {
    LinearTraining training(1);
    auto& [strategy, model, adam] = training;
    CudaGraph graph(step_and_zero, options);
    for (int step = 0; step < 10; ++step) {
      strategy.run(backward, model, rows(strategy, step));
      strategy.run(graph, adam);
    }
    return training.weights();
  });
}

TEST(CudaGraphGradients, OfAnOptimizerMadeAnewGoToTheNewOne) {
  expect_equal_with_and_without_graphs([](const CudaGraphOptions& options) {
    MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
    auto model = make_linear(strategy);
    CudaGraph graph(
        [](ReplicaContext& replica, torch::nn::Linear& net, FusedSgd& sgd, const torch::Tensor& x) {
          sgd.zero_grad();
          net->forward(x).square().sum().backward();
          replica.apply_gradients(sgd);
        },
        options);
    for (int fold = 0; fold < 3; ++fold) {
      auto sgd = strategy.scope([&](ReplicaContext& replica) {
        return FusedSgd(model[replica]->parameters(), FusedSgdOptions(0.01 * (fold + 1)));
      });
      for (int step = 0; step < 7; ++step) strategy.run(graph, model, sgd, rows(strategy, step));
      EXPECT_EQ(strategy.optimizer_group(sgd.primary())->finished_steps(), (std::vector<int64_t>{7, 7}));
    }
    EXPECT_EQ(graph.statistics().captures, options.enabled ? 3 : 0);
    return on_host(model.primary()->parameters());
  });
}

TEST(CudaGraphGradients, OfTwoOptimizersThatStepInTurnAreTheirOwn) {
  for (const int replicas : {1, 2}) {
    expect_equal_with_and_without_graphs([&](const CudaGraphOptions& options) {
      LinearTraining training(replicas);
      auto& [strategy, generator, adam] = training;
      auto critic = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 1); });
      auto critics_adam = strategy.scope(
          [&](ReplicaContext& replica) { return FusedAdam(critic[replica]->parameters(), 0.1); });
      CudaGraph graph(
          [](ReplicaContext& replica, torch::nn::Linear& generator, FusedAdam& adam,
             torch::nn::Linear& critic, FusedAdam& critics_adam, const torch::Tensor& x) {
            critics_adam.zero_grad();
            critic->forward(generator->forward(x).detach()).square().sum().backward();
            replica.apply_gradients(critics_adam);
            adam.zero_grad();
            critic->forward(generator->forward(x)).square().sum().backward();
            replica.apply_gradients(adam);
          },
          options);
      for (int step = 0; step < 12; ++step)
        strategy.run(graph, generator, adam, critic, critics_adam, rows(strategy, step));
      EXPECT_EQ(graph.statistics().replays > 0, options.enabled);
      return training.weights();
    });
  }
}

TEST(CudaGraphGradients, LeftToALaterRunBySeveralReplicasAreRefused) {
  LOCKSTEP_NEEDS_GPUS(1);
  LinearTraining training(2);
  CudaGraph graph(backward, {.warm_up_runs = 1});
  const auto steps = [&] {
    for (int step = 0; step < 8; ++step) {
      training.strategy.run(graph, training.model, rows(training.strategy, step));
      training.strategy.run(step_and_zero, training.adam);
    }
  };
  EXPECT_THAT(steps, testing::ThrowsMessage<InvalidArgument>(
                         HasSubstr("leaves gradients to a later run: call apply")));
  CudaGraph whole(backward_and_step, {.warm_up_runs = 1});
  for (int step = 0; step < 8; ++step)
    training.strategy.run(whole, training.model, training.adam, rows(training.strategy, step));
  EXPECT_GT(whole.statistics().replays, 0);
}

TEST(CudaGraphGradients, AReplayThatFailsBeforeItsStepCountsNone) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto train = [](bool fails) {
    const auto ops = std::make_shared<FailingOps>("hierarchical_copy");
    LinearTraining training(2, ops);
    auto& [strategy, model, adam] = training;
    CudaGraph graph(backward_and_step, {.warm_up_runs = 1});
    for (int step = 0; step < 14; ++step) {
      if (fails && step == 7) {
        EXPECT_GT(graph.statistics().replays, 0);
        ops->fault = FaultIn::kJoining;
        EXPECT_THROW(strategy.run(graph, model, adam, rows(strategy, step)), std::domain_error);
        ops->fault = FaultIn::kNothing;
        EXPECT_EQ(strategy.optimizer_group(adam.primary())->finished_steps(), (std::vector<int64_t>{7, 7}));
      }
      strategy.run(graph, model, adam, rows(strategy, step));
    }
    return training.weights();
  };
  EXPECT_TRUE(bit_equal(train(true), train(false)));
}

std::atomic<bool> fails_after_the_step{false};

void step_and_fail_on_replica_1(ReplicaContext& replica, torch::nn::Linear& model, FusedAdam& adam,
                                const torch::Tensor& x) {
  backward_and_step(replica, model, adam, x);
  if (fails_after_the_step && replica.replica_id() == 1) throw std::domain_error("planted");
}

// A capture computes nothing until it ends: a replica that fails before that has not stepped.
TEST(CudaGraphGradients, AStepThatIsCapturedCountsOnceItsGraphIsLaunched) {
  LOCKSTEP_NEEDS_GPUS(1);
  std::optional<int64_t> captured_step;
  const auto train = [&](std::optional<int64_t> failing_step) {
    LinearTraining training(2);
    auto& [strategy, model, adam] = training;
    CudaGraph graph(&step_and_fail_on_replica_1, {.warm_up_runs = 1});
    for (int64_t step = 0; step < 10; ++step) {
      auto x = rows(strategy, static_cast<int>(step));
      fails_after_the_step = step == failing_step;
      if (fails_after_the_step) {
        EXPECT_THROW(strategy.run(graph, model, adam, x), std::domain_error);
        EXPECT_EQ(strategy.optimizer_group(adam.primary())->finished_steps(),
                  (std::vector<int64_t>{step + 1, step}));
        EXPECT_THROW(strategy.run([](ReplicaContext&) {}), InconsistentReplicas);
        strategy.restore_consistency(model, adam);
      } else {
        strategy.run(graph, model, adam, x);
        if (!captured_step && graph.statistics().captures == 1) captured_step = step;
      }
    }
    EXPECT_GT(graph.statistics().replays, 0);
    EXPECT_TRUE(bit_equal(training.weights(), on_host(model.local_values()[1]->parameters())));
    return training.weights();
  };
  const auto expected = train(std::nullopt);
  ASSERT_TRUE(captured_step);
  EXPECT_TRUE(bit_equal(train(captured_step), expected));
}

TEST(CudaGraphGradients, OfFirstStepsThatTheScalerSkipsAreWaitedForByCalls) {
  expect_equal_with_and_without_graphs([](const CudaGraphOptions& options) {
    MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
    auto model = make_linear(strategy);
    auto sgd = strategy.scope([&](ReplicaContext& replica) {
      return FusedSgd(model[replica]->parameters(), FusedSgdOptions(0.01).momentum(0.9));
    });
    auto scaler = strategy.scope([](ReplicaContext& replica) { return GradScaler(replica.device()); });
    CudaGraph graph(
        [](ReplicaContext& replica, torch::nn::Linear& net, FusedSgd& sgd, GradScaler& scaler,
           const torch::Tensor& x) {
          sgd.zero_grad();
          scaler.scale(net->forward(x).square().sum()).backward();
          replica.apply_gradients(sgd, {.scaler = &scaler});
          scaler.update();
        },
        options);
    for (int step = 0; step < 14; ++step) {
      auto x = rows(strategy, step);
      if (step < 5) x.local_values()[1][0][0] = std::numeric_limits<float>::infinity();
      strategy.run(graph, model, sgd, scaler, x);
    }
    EXPECT_EQ(graph.statistics().replays > 0, options.enabled);
    return on_host(model.primary()->parameters());
  });
}

}  // namespace
}  // namespace lockstep
