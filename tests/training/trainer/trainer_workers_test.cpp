// Trainers over several workers in threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <string>

#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/worker_training.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/callbacks/model_checkpoint.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/metrics/auc.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

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

// Otherwise the worker with fewer epochs would leave the other one waiting.
TEST(TrainerOverWorkers, RefusesFitsOfDifferentLengths) {
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  const FitOptions<> options{.epochs = 2, .batches = {.global_batch_size = kBatchSize}};
  const auto expect_refused = [&](const std::string& first, const std::string& second,
                                  const std::function<void(FitOptions<>&)>& change) {
    const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
      auto trainer = trainer_from(strategy, start);
      FitOptions<> own = options;
      if (strategy.cluster_resolver()->rank() == 1) change(own);
      try {
        trainer.fit(data.data, data.target, own);
        ADD_FAILURE() << "was not refused";
      } catch (const ClusterError& error) {
        EXPECT_THAT(error.what(),
                    ::testing::AllOf(::testing::HasSubstr("[fit] expected the same on all workers"),
                                     ::testing::HasSubstr("has " + first + " where worker 1"),
                                     ::testing::HasSubstr("has " + second)));
      }
    };
    run_strategies({1, 1}, train, [](int, WorkerSetUp&) {});
  };
  expect_refused("epochs: 2", "epochs: 1", [](FitOptions<>& own) { own.epochs = 1; });
  expect_refused("steps per epoch: 3", "steps per epoch: 2",
                 [](FitOptions<>& own) { own.steps_per_epoch = 2; });
}

/// A net whose output in evaluation depends on BatchNorm's running statistics.
struct NormedNetImpl : torch::nn::Module {
  NormedNetImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    dense = register_module("dense", torch::nn::Linear(6, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return dense(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear dense{nullptr};
};
TORCH_MODULE(NormedNet);

TEST(TrainerOverWorkers, EvaluatesOneModelOfTheMeanOfAllReplicasStatistics) {
  const auto data = examples_of_three_classes();
  const ::lockstep::testing::TemporaryFolder folder;
  std::vector<std::vector<torch::Tensor>> means(2), before(2);
  std::vector<torch::Tensor> outputs(2);
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
    Trainer trainer(
        strategy, [](ReplicaContext&) { return NormedNet(); },
        [](const auto& parameters) { return torch::optim::SGD(parameters, 0.01); }, cross_entropy);
    trainer.fit(
        data.data.narrow(0, 0, 12), data.target.narrow(0, 0, 12),
        {.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder.path()})},
         .batches = {.global_batch_size = 12}});
    for (const auto& model : trainer.model().local_values())
      before[rank].push_back(model->norm->running_mean.cpu().clone());
    outputs[rank] = trainer.predict(data.data, {.global_batch_size = 4});
    for (const auto& model : trainer.model().local_values())
      means[rank].push_back(model->norm->running_mean.cpu().clone());
  };
  expect_no_worker_failed(run_strategies({2, 1}, train, [](int, WorkerSetUp&) {}));
  // Saving changed nothing: each replica has the statistics of its own shard.
  EXPECT_GT((before[0][0] - before[1][0]).abs().max().item<double>(), 1e-3);
  const auto mean = (before[0][0] + before[0][1] + before[1][0]) / 3;
  for (const auto& of_worker : means) {
    for (const auto& own : of_worker) EXPECT_LT((own - mean).abs().max().item<double>(), 1e-15);
  }
  EXPECT_TRUE(outputs[0].equal(outputs[1]));
  for (const std::string name : {"/last.safetensors", "/last.pt"}) {
    for (const auto& [key, tensor] : load_weights(folder.path() + name)) {
      if (key == "norm.running_mean") {
        EXPECT_LT((tensor - mean).abs().max().item<double>(), 1e-15) << name;
      }
    }
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
  data.data[4][0] = std::nan("");  // in worker 1's shard of the first batch
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
      steps[rank] = error.place().step;
      replicas[rank] = error.place().replica;
    }
  };
  run_strategies({1, 1}, train, [](int, WorkerSetUp&) {});
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(replicas, (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace lockstep
