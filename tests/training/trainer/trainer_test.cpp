#include "lockstep/training/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/callbacks/gradient_norm.h"
#include "lockstep/training/metrics/auc.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TanhNet tanh_net_from_seed() {
  torch::manual_seed(17);
  return TanhNet();
}

auto make_tanh_trainer(Strategy& strategy, MetricList metrics = {}) {
  torch::manual_seed(17);
  return Trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy, std::move(metrics));
}

std::vector<torch::Tensor> parameters_of(Trainer<TanhNet>& trainer) {
  return values_of(trainer.model().primary()->parameters());
}

struct FloatNetImpl : torch::nn::Module {
  FloatNetImpl() { dense = register_module("dense", torch::nn::Linear(6, 3)); }
  torch::Tensor forward(const torch::Tensor& x) { return dense(x); }
  torch::nn::Linear dense{nullptr};
};
TORCH_MODULE(FloatNet);

struct OneByOne : torch::data::datasets::Dataset<OneByOne> {
  explicit OneByOne(Example all) : examples(std::move(all)) {}
  Example get(size_t index) override {
    return {examples.data[static_cast<int64_t>(index)], examples.target[static_cast<int64_t>(index)]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(examples.data.size(0)); }
  Example examples;
};

/// 1, 2 and 3 replicas: 13 examples in batches of 5 end with one of 3, of which each of three replicas gets
/// one.
class TrainerOnReplicas : public ::testing::TestWithParam<int> {
 protected:
  MirroredStrategy strategy_{cpu_devices(GetParam()), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
};

TEST_P(TrainerOnReplicas, FitsToTheBitsOfTheLoopByHand) {
  const auto by_hand = trained_on_replicas<TanhNet>({GetParam(), "auto"}, make_tanh_net, data_,
                                                    momentum_sgd(), plain_step<TanhNet>);
  auto trainer = make_tanh_trainer(strategy_, {{"accuracy", CategoricalAccuracy()}});
  const auto history = trainer.fit(data_.data, data_.target,
                                   {.epochs = kEpochs, .batches = {.global_batch_size = kBatchSize}});
  EXPECT_TRUE(bit_equal(parameters_of(trainer), by_hand));
  expect_bit_equal_replicas(trainer.model(), history.steps);
  EXPECT_EQ(history.steps, kEpochs * 3);
}

TEST_P(TrainerOnReplicas, FitsAShuffledStreamOfStepsToTheBitsOfTheLoopByHand) {
  const DistributeOptions shuffled{.global_batch_size = kBatchSize, .shuffle_seed = 3};
  torch::manual_seed(17);
  auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy_.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto batches = strategy_.distribute_dataset(TensorDataset(data_.data, data_.target), shuffled);
  int64_t steps = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const auto& batch : batches) {
      if (steps++ < 8) strategy_.run(plain_step<TanhNet>, model, optimizer, batch);
    }
  }
  auto trainer = make_tanh_trainer(strategy_);
  // Four epochs of two steps. The second one begins in the dataset's first pass and ends in its second.
  const auto history = trainer.fit(TensorDataset(data_.data, data_.target),
                                   {.epochs = 4, .steps_per_epoch = 2, .batches = shuffled});
  EXPECT_EQ(history.steps, 8);
  EXPECT_TRUE(bit_equal(parameters_of(trainer), values_of(model.primary()->parameters())));
}

TEST_P(TrainerOnReplicas, MicroBatchesMakeTheStepsOfWholeOnes) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, data_, momentum_sgd());
  for (const int64_t micro_batches : {2, 3, 100}) {
    auto trainer = make_tanh_trainer(strategy_);
    trainer.fit(
        data_.data, data_.target,
        {.epochs = kEpochs, .batches = {.global_batch_size = kBatchSize}, .micro_batches = micro_batches});
    EXPECT_LT(largest_difference(parameters_of(trainer), alone), 1e-12) << micro_batches;
    expect_bit_equal_replicas(trainer.model(), micro_batches);
  }
}

TEST_P(TrainerOnReplicas, ClipsTheNormOfTheWholeGradient) {
  AloneOptions options;
  options.clip_norm = 0.05;
  const auto alone = trained_alone<TanhNet>(make_tanh_net, data_, momentum_sgd(), options);
  auto trainer = make_tanh_trainer(strategy_);
  const auto history =
      trainer.fit(data_.data, data_.target,
                  {.epochs = kEpochs, .batches = {.global_batch_size = kBatchSize}, .clip_norm = 0.05});
  EXPECT_LT(largest_difference(parameters_of(trainer), alone), 1e-12);
  EXPECT_GT(*history.epochs.front().find("gradient_norm"), 0.05);  // before clipping
}

TEST_P(TrainerOnReplicas, EvaluatesEveryExampleOnceAsOneDevice) {
  auto model = tanh_net_from_seed();
  const auto logits = model->forward(data_.data).detach();
  const auto losses = torch::cross_entropy_loss(logits, data_.target, {}, at::Reduction::None);
  const auto matches = logits.argmax(1).eq(data_.target).sum().item<double>();
  auto trainer =
      make_tanh_trainer(strategy_, {{"accuracy", CategoricalAccuracy()}, {"confusion", ConfusionMatrix(3)}});
  const auto evaluation = trainer.evaluate(data_.data, data_.target, {.global_batch_size = kBatchSize});
  EXPECT_EQ(evaluation.examples, kExamples);
  EXPECT_NEAR(*evaluation.logs.find("loss"), losses.mean().item<double>(), 1e-14);
  EXPECT_EQ(*evaluation.logs.find("accuracy"), matches / kExamples);
  ASSERT_EQ(evaluation.tensors.size(), 1U);
  EXPECT_EQ(evaluation.tensors.front().first, "confusion");
  EXPECT_EQ(evaluation.tensors.front().second.sum().item<double>(), kExamples);
  EXPECT_EQ(evaluation.tensors.front().second.diagonal().sum().item<double>(), matches);
}

TEST_P(TrainerOnReplicas, PredictsInTheOrderOfTheExamples) {
  auto model = tanh_net_from_seed();
  auto trainer = make_tanh_trainer(strategy_);
  const auto outputs = trainer.predict(data_.data, {.global_batch_size = kBatchSize});
  EXPECT_LT((outputs - model->forward(data_.data)).abs().max().item<double>(), 1e-14);
  const auto of_dataset = trainer.predict(TensorDataset(data_.data, data_.target));
  EXPECT_LT((of_dataset - model->forward(data_.data)).abs().max().item<double>(), 1e-14);
}

TEST_P(TrainerOnReplicas, RunsAStepOfTheUsersOwn) {
  const auto by_hand = trained_on_replicas<TanhNet>({GetParam(), "auto"}, make_tanh_net, data_,
                                                    momentum_sgd(), plain_step<TanhNet>);
  TrainerOptions<TanhNet> options;
  options.train_step = [](ReplicaContext& replica, TanhNet& model, torch::optim::Optimizer& optimizer,
                          const Example& batch) {
    optimizer.zero_grad();
    const auto outputs = model->forward(batch.data);
    const auto losses = cross_entropy(outputs, batch.target);
    compute_average_loss(replica, losses).backward();
    replica.apply_gradients(optimizer);
    return StepOutputs{losses, outputs, batch.target};
  };
  torch::manual_seed(17);
  Trainer trainer(
      strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy,
      {{"accuracy", CategoricalAccuracy()}}, options);
  const FitOptions<> fit{.epochs = kEpochs, .batches = {.global_batch_size = kBatchSize}};
  const auto history = trainer.fit(data_.data, data_.target, fit);
  EXPECT_TRUE(bit_equal(parameters_of(trainer), by_hand));
  EXPECT_TRUE(history.epochs.back().find("accuracy").has_value());
  auto clipped = fit;
  clipped.clip_norm = 1;
  EXPECT_THROW(trainer.fit(data_.data, data_.target, clipped), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Replicas, TrainerOnReplicas, ::testing::Values(1, 2, 3));

class TrainerTest : public ::testing::Test {
 protected:
  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
  DistributeOptions batches_{.global_batch_size = kBatchSize};
};

TEST_F(TrainerTest, LogsTheMeanLossOfTheExamplesAsTheModelLearned) {
  std::vector<double> losses;
  AloneOptions options;
  options.schedule.epochs = 1;
  options.losses = &losses;  // for batches of 5, 5 and 3
  trained_alone<TanhNet>(make_tanh_net, data_, momentum_sgd(), options);
  auto trainer = make_tanh_trainer(strategy_);
  const auto history = trainer.fit(data_.data, data_.target, {.batches = batches_});
  EXPECT_NEAR(*history.epochs[0].find("loss"), (5 * losses[0] + 5 * losses[1] + 3 * losses[2]) / 13, 1e-13);
}

TEST_F(TrainerTest, TakesAMirroredModelAModuleOrAFactory) {
  torch::manual_seed(17);
  auto mirrored = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  Trainer from_mirrored(strategy_, mirrored, momentum_sgd(), cross_entropy);
  Trainer from_module(strategy_, tanh_net_from_seed(), momentum_sgd(), cross_entropy);
  Trainer by_value(
      strategy_, tanh_net_from_seed(),
      [](const std::vector<torch::Tensor>& parameters) {
        return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
      },
      cross_entropy);
  auto from_factory = make_tanh_trainer(strategy_);
  from_factory.fit(data_.data, data_.target, {.batches = batches_});
  for (auto* trainer : {&from_mirrored, &from_module, &by_value}) {
    trainer->fit(data_.data, data_.target, {.batches = batches_});
    EXPECT_TRUE(bit_equal(parameters_of(*trainer), parameters_of(from_factory)));
  }
}

TEST_F(TrainerTest, FitsLibTorchsDatasetsOneByOne) {
  auto by_tensors = make_tanh_trainer(strategy_);
  by_tensors.fit(data_.data, data_.target, {.batches = batches_});
  auto trainer = make_tanh_trainer(strategy_);
  trainer.fit(OneByOne(data_), {.batches = batches_});
  EXPECT_TRUE(bit_equal(parameters_of(trainer), parameters_of(by_tensors)));
}

TEST_F(TrainerTest, FitsStreamsWhoseEndIsNotKnown) {
  auto by_tensors = make_tanh_trainer(strategy_);
  by_tensors.fit(data_.data, data_.target, {.epochs = 2, .batches = batches_});
  const auto make = [this](const InputContext&) {
    return [this, at = int64_t{0}]() mutable -> std::optional<Example> {
      if (at >= kExamples) return std::nullopt;
      const int64_t begin = at, count = std::min<int64_t>(kBatchSize, kExamples - at);
      at += count;
      return Example{data_.data.narrow(0, begin, count), data_.target.narrow(0, begin, count)};
    };
  };
  DefaultStrategy alone;
  auto trainer = make_tanh_trainer(alone);
  auto stream = alone.distribute_datasets_from_function(make);
  const auto history = trainer.fit(stream, {.epochs = 2});
  EXPECT_EQ(history.steps, 6);
  EXPECT_LT(largest_difference(parameters_of(trainer), parameters_of(by_tensors)), 1e-12);
}

TEST_F(TrainerTest, ValidatesAfterEveryEpoch) {
  auto trainer =
      make_tanh_trainer(strategy_, {{"accuracy", CategoricalAccuracy()}, {"confusion", ConfusionMatrix(3)}});
  auto validation =
      strategy_.distribute_dataset(TensorDataset(data_.data, data_.target), {.global_batch_size = 4});
  const auto history =
      trainer.fit(data_.data, data_.target, {.epochs = 2, .validation = validation, .batches = batches_});
  const auto after = trainer.evaluate(validation);
  EXPECT_EQ(history.epochs.back().find("validation_loss"), after.logs.find("loss"));
  EXPECT_EQ(history.epochs.back().find("validation_accuracy"), after.logs.find("accuracy"));
  EXPECT_NE(history.epochs[0].find("validation_loss"), history.epochs[1].find("validation_loss"));
  EXPECT_TRUE(trainer.model().primary()->is_training());
}

TEST_F(TrainerTest, MeasuresGradientNormsForCallbacksThatNeedThem) {
  auto model = tanh_net_from_seed();
  torch::cross_entropy_loss(model->forward(data_.data), data_.target).backward();
  double squares = 0;
  for (const auto& parameter : model->parameters()) squares += parameter.grad().square().sum().item<double>();
  auto trainer = make_tanh_trainer(strategy_);
  const auto history = trainer.fit(
      data_.data, data_.target,
      {.callbacks = {std::make_shared<GradientNorm>()}, .batches = {.global_batch_size = kExamples}});
  EXPECT_NEAR(*history.epochs[0].find("gradient_norm"), std::sqrt(squares), 1e-12);
  EXPECT_FALSE(trainer.fit(data_.data, data_.target).epochs[0].find("gradient_norm").has_value());
}

TEST_F(TrainerTest, RefusesMetricsOfBatchesWithoutTargets) {
  TrainerOptions<TanhNet, torch::Tensor> options;
  options.compute = [](ReplicaContext&, TanhNet& model, const torch::Tensor& batch) {
    const auto outputs = model->forward(batch);
    return StepOutputs{outputs.square().sum(1), outputs, {}};
  };
  Trainer<TanhNet, torch::Tensor> trainer(strategy_, tanh_net_from_seed(), momentum_sgd(), cross_entropy,
                                          {{"accuracy", CategoricalAccuracy()}}, options);
  auto unlabelled =
      strategy_.distribute_dataset(detail::TensorRows(data_.data), {.global_batch_size = kBatchSize});
  try {
    trainer.fit(unlabelled);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[CategoricalAccuracy] expected targets, but got a batch without");
  }
}

TEST_F(TrainerTest, FitsBatchesWithoutTargetsByAComputeOfTheUsersOwn) {
  TrainerOptions<TanhNet, torch::Tensor> options;
  options.compute = [](ReplicaContext&, TanhNet& model, const torch::Tensor& batch) {
    return StepOutputs{model->forward(batch).square().sum(1), {}, {}};
  };
  Trainer<TanhNet, torch::Tensor> trainer(strategy_, tanh_net_from_seed(), momentum_sgd(), nullptr, {},
                                          options);
  auto unlabelled =
      strategy_.distribute_dataset(detail::TensorRows(data_.data), {.global_batch_size = kBatchSize});
  const auto history = trainer.fit(unlabelled, {.epochs = 10});
  EXPECT_LT(*history.epochs.back().find("loss"), *history.epochs.front().find("loss") / 2);
}

TEST_F(TrainerTest, RefusesOptionsOutOfRange) {
  auto trainer = make_tanh_trainer(strategy_);
  auto batches = strategy_.distribute_dataset(TensorDataset(data_.data, data_.target), batches_);
  EXPECT_THROW(trainer.fit(batches, {.epochs = 0}), InvalidArgument);
  EXPECT_THROW(trainer.fit(batches, {.steps_per_epoch = 0}), InvalidArgument);
  EXPECT_THROW(trainer.fit(batches, {.clip_norm = -1}), InvalidArgument);
  EXPECT_THROW(trainer.fit(batches, {.micro_batches = 0}), InvalidArgument);
  EXPECT_THROW(trainer.fit(batches.repeat()), InvalidArgument);
  EXPECT_THROW(trainer.fit(batches.take(0)), InvalidArgument);
  EXPECT_THROW(trainer.fit(data_.data, data_.target.narrow(0, 0, 12)), InvalidArgument);
  EXPECT_THROW(trainer.evaluate(batches.take(0)), InvalidArgument);
  EXPECT_THROW(trainer.predict(torch::zeros({0, 6}, torch::kDouble)), InvalidArgument);
  EXPECT_THROW(make_tanh_trainer(strategy_, {{"a", CategoricalAccuracy()}, {"a", CategoricalAccuracy()}}),
               InvalidArgument);
  EXPECT_THROW(make_tanh_trainer(strategy_, {{"learning_rate", CategoricalAccuracy()}}), InvalidArgument);
}

TEST_F(TrainerTest, LeavesOverflowedStepsOutOfTheGradientNorm) {
  // A scale that overflows float16 in the first steps, and halves at each.
  TrainerOptions<FloatNet> options;
  options.autocast = torch::kHalf;
  Trainer trainer(
      strategy_, [](ReplicaContext&) { return FloatNet(); },
      [](const auto& parameters) { return FusedSgd(parameters, FusedSgdOptions(0.01)); }, cross_entropy, {},
      options);
  for (auto& scaler : trainer.scaler().local_values())
    scaler.load_state({.scale = 0x1p40, .growth_tracker = 0});
  const auto history =
      trainer.fit(data_.data.to(torch::kFloat), data_.target,
                  {.epochs = 2, .callbacks = {std::make_shared<GradientNorm>()}, .batches = batches_});
  EXPECT_TRUE(std::isfinite(*history.epochs[0].find("gradient_norm")));
  EXPECT_LT(trainer.scaler().primary().get_scale(), 0x1p40);
}

TEST_F(TrainerTest, RefusesMetricsThatACudaGraphCannotCapture) {
  TrainerOptions<TanhNet> options;
  options.cuda_graph = true;
  EXPECT_NO_THROW(Trainer(strategy_, tanh_net_from_seed(), momentum_sgd(), cross_entropy,
                          {{"accuracy", CategoricalAccuracy()}}, options));
  EXPECT_THROW(
      Trainer(strategy_, tanh_net_from_seed(), momentum_sgd(), cross_entropy, {{"auc", Auc()}}, options),
      InvalidArgument);
}

}  // namespace
}  // namespace lockstep
