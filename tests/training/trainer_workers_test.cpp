// Trainers over several workers, as threads.
#include <gtest/gtest.h>

#include "lockstep/tests/strategies/worker_training.h"
#include "lockstep/training/auc.h"
#include "lockstep/training/confusion_matrix.h"
#include "lockstep/training/early_stopping.h"
#include "lockstep/training/loss_functions.h"
#include "lockstep/training/nan_guard.h"
#include "lockstep/training/trainer.h"

namespace lockstep {
namespace {

const std::vector<std::vector<int>> kWorkerLayouts{{1, 1}, {2, 1}, {1, 1, 1}};

auto trainer_from(Strategy& strategy, const std::vector<torch::Tensor>& start) {
  TrainerOptions<TanhNet> options;
  options.evaluation_metrics = {{"confusion", ConfusionMatrix(3)}};
  return Trainer(
      strategy, [&](ReplicaContext&) { return tanh_net_of(start); }, momentum_sgd(), cross_entropy,
      {{"accuracy", CategoricalAccuracy()}}, options);
}

TEST(TrainerOverWorkers, FitsAndEvaluatesAsOneDevice) {
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  const FitOptions<> options{.epochs = kEpochs, .batches = {.global_batch_size = kBatchSize}};
  DefaultStrategy alone;
  auto expected = trainer_from(alone, start);
  const auto history_alone = expected.fit(data.data, data.target, options);
  const auto evaluation_alone = expected.evaluate(data.data, data.target, {.global_batch_size = 4});
  const auto outputs_alone = expected.predict(data.data, {.global_batch_size = 4});
  for (const auto& layout : kWorkerLayouts) {
    const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
      auto trainer = trainer_from(strategy, start);
      const auto history = trainer.fit(data.data, data.target, options);
      EXPECT_LT(largest_difference(values_of(trainer.model().primary()->parameters()),
                                   values_of(expected.model().primary()->parameters())),
                1e-12);
      EXPECT_NEAR(*history.epochs.back().find("loss"), *history_alone.epochs.back().find("loss"), 1e-12);
      EXPECT_EQ(history.epochs.back().find("accuracy"), history_alone.epochs.back().find("accuracy"));
      const auto evaluation = trainer.evaluate(data.data, data.target, {.global_batch_size = 4});
      EXPECT_EQ(evaluation.examples, kExamples);
      EXPECT_NEAR(*evaluation.logs.find("loss"), *evaluation_alone.logs.find("loss"), 1e-12);
      EXPECT_TRUE(evaluation.tensors.front().second.equal(evaluation_alone.tensors.front().second));
      const auto outputs = trainer.predict(data.data, {.global_batch_size = 4});
      EXPECT_LT((outputs - outputs_alone).abs().max().item<double>(), 1e-12);
    };
    expect_no_worker_failed(run_strategies(layout, train, [](int, WorkerSetUp&) {}));
  }
}

TEST(TrainerOverWorkers, GathersTheScoresOfMetricsThatKeepThem) {
  torch::manual_seed(9);
  const auto scores = torch::rand({kExamples}, torch::kDouble);
  const auto answers = torch::randint(2, {kExamples});
  Auc whole;
  whole.update(scores, answers);
  const double expected = whole.value(merge_states(Auc::kMerge, {whole.state()}));
  const auto measure = [&](MultiWorkerMirroredStrategy& strategy) {
    auto aucs = strategy.scope([](ReplicaContext&) { return Auc(); });
    auto batches =
        strategy.distribute_dataset(detail::TensorPairs(scores, answers), {.global_batch_size = 4});
    for (const auto& batch : batches) {
      strategy.run(
          [](ReplicaContext&, Auc& auc, const Example& shard) { auc.update(shard.data, shard.target); }, aucs,
          batch);
    }
    EXPECT_DOUBLE_EQ(result(strategy, aucs), expected);
  };
  expect_no_worker_failed(run_strategies({2, 1}, measure, [](int, WorkerSetUp&) {}));
}

TEST(TrainerOverWorkers, StopAtTheSameEpoch) {
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  std::vector<std::string> reasons(2);
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    auto trainer = trainer_from(strategy, start);
    const auto history = trainer.fit(data.data, data.target,
                                     {.epochs = 50,
                                      .callbacks = {std::make_shared<EarlyStopping>(EarlyStoppingOptions{
                                          .monitor = {.name = "loss", .min_delta = 0.05}, .patience = 1})},
                                      .batches = {.global_batch_size = kBatchSize}});
    reasons[static_cast<size_t>(strategy.cluster_resolver()->rank())] = history.stop_reason;
  };
  expect_no_worker_failed(run_strategies({1, 1}, train, [](int, WorkerSetUp&) {}));
  EXPECT_NE(reasons[0], "");
  EXPECT_EQ(reasons[0], reasons[1]);
}

TEST(TrainerOverWorkers, FindTheSameNanInTheSameStep) {
  auto data = examples_of_three_classes();
  data.data[4][0] = std::nan("");  // of worker 1's shard of the first batch
  const auto start = initial_values();
  std::vector<int64_t> steps(2), replicas(2);
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    auto trainer = trainer_from(strategy, start);
    const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
    try {
      trainer.fit(data.data, data.target,
                  {.callbacks = {std::make_shared<NanGuard>(NanGuardOptions{.every_steps = 2})},
                   .batches = {.global_batch_size = kBatchSize}});
    } catch (const NotFinite& error) {
      steps[rank] = error.step();
      replicas[rank] = error.replica();
    }
  };
  run_strategies({1, 1}, train, [](int, WorkerSetUp&) {});
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(replicas, (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace lockstep
