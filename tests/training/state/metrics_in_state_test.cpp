// Metrics of a hand-written loop in a TrainingState.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/metrics/auc.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

/// A loop with a metric that is summed and one that is concatenated.
struct Loop {
  explicit Loop(Strategy& made_by)
      : strategy(made_by),
        model(made_by.scope([](ReplicaContext&) { return torch::nn::Linear(2, 1); })),
        loss(made_by.scope([](ReplicaContext&) { return Mean(); })),
        auc(made_by.scope([](ReplicaContext&) { return Auc(); })),
        state(made_by) {
    state.add_model(model);
    state.add_metric("loss", loss);
    state.add_metric("auc", auc);
  }

  /// Replica r of n gets the examples r, r + n, ... of the step's six.
  void step(int number) {
    strategy.run(
        [](ReplicaContext& replica, Mean& mean, Auc& curve, int now) {
          auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(now));
          const auto scores = torch::rand({6}, generator);
          const auto targets = torch::tensor({0, 1, 1, 0, 1, 0});
          const auto own = torch::arange(replica.replica_id(), 6, replica.num_replicas());
          const auto own_scores = scores.index_select(0, own).to(replica.device());
          mean.update(own_scores);
          curve.update(own_scores, targets.index_select(0, own).to(replica.device()));
        },
        loss, auc, number);
  }

  Strategy& strategy;
  Mirrored<torch::nn::Linear> model;
  Mirrored<Mean> loss;
  Mirrored<Auc> auc;
  TrainingState state;
};

TEST(MetricsInState, ARunThatResumesWithinAnEpochKeepsCountingOnAnyNumberOfReplicas) {
  OneDeviceStrategy one(cpu_devices(1)[0]);
  Loop whole(one);
  for (int step = 0; step < 4; ++step) whole.step(step);

  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy two(cpu_devices(2));
  Loop first(two);
  for (int step = 0; step < 2; ++step) first.step(step);
  first.state.save(path, {.step = 2});
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpu_devices(n));
    Loop resumed(strategy);
    resumed.step(99);  // is overwritten
    EXPECT_EQ(resumed.state.load(path).step, 2);
    for (int step = 2; step < 4; ++step) resumed.step(step);
    EXPECT_NEAR(result(resumed.loss), result(whole.loss), 1e-12) << n << " replicas";
    EXPECT_EQ(result(resumed.auc), result(whole.auc)) << n << " replicas";
  }
}

TEST(MetricsInState, WorkersSaveAndResumeTogether) {
  OneDeviceStrategy one(cpu_devices(1)[0]);
  Loop whole(one);
  for (int step = 0; step < 2; ++step) whole.step(step);
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  expect_no_worker_failed(run_strategies({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    Loop loop(strategy);
    loop.step(0);
    loop.state.save(path, {});
  }));
  expect_no_worker_failed(run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    Loop loop(strategy);
    loop.state.load(path);
    loop.step(1);
    EXPECT_NEAR(result(strategy, loop.loss), result(whole.loss), 1e-12);
    EXPECT_EQ(result(strategy, loop.auc), result(whole.auc));
  }));
}

TEST(MetricsInState, StartFrom0IfTheFileHasNone) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  OneDeviceStrategy strategy(cpu_devices(1)[0]);
  Loop loop(strategy);
  TrainingState without(strategy);
  without.add_model(loop.model);
  without.save(path, {});
  loop.step(0);
  loop.state.load(path);
  EXPECT_EQ(loop.loss.primary().count(), 0);
}

TEST(MetricsInState, OtherMetricsThanInTheFileAreRefusedByName) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  OneDeviceStrategy strategy(cpu_devices(1)[0]);
  Loop loop(strategy);
  loop.state.save(path, {});
  TrainingState other(strategy);
  other.add_model(loop.model);
  other.add_metric("accuracy", loop.loss);
  EXPECT_EQ(message_of<CheckpointError>([&] { other.load(path); }),
            path + ": state['metrics']: expected a key 'accuracy', but got none");
  EXPECT_THAT(message_of<InvalidArgument>([&] { other.add_metric("accuracy", loop.loss); }),
              ::testing::HasSubstr("expected a name for each metric, but got 'accuracy' twice"));
}

}  // namespace
}  // namespace lockstep
