#include "lockstep/training/callbacks/refresh_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNormFeatures = 4;
constexpr int64_t kNormExamples = 22;
constexpr int64_t kNormBatch = 8;  // the last of three batches has 6 examples

using OptionalMomentum = std::optional<double>;

template <typename Norm>
Norm make_norm(OptionalMomentum momentum) {
  return Norm(torch::nn::BatchNormOptions(kNormFeatures).momentum(momentum));
}

/// A normalization of the input, then dropout and a dense layer, which must not disturb it.
template <typename Norm>
struct NormNetImpl : torch::nn::Module {
  explicit NormNetImpl(OptionalMomentum momentum)
      : norm(register_module("norm", make_norm<Norm>(momentum))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (fails) throw std::runtime_error("no output");
    return dense(dropout(norm(x)));
  }
  Norm norm;
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.5));
  torch::nn::Linear dense = register_module("dense", torch::nn::Linear(kNormFeatures, 2));
  bool fails = false;
};
template <typename Norm>
using NormNet = std::shared_ptr<NormNetImpl<Norm>>;

/// Examples whose statistics differ between batches.
Example drifting_examples() {
  torch::manual_seed(3);
  const auto drift = torch::arange(kNormExamples, torch::kFloat).unsqueeze(1);
  return {torch::randn({kNormExamples, kNormFeatures}) * (1 + 0.1 * drift) + drift,
          torch::randint(0, 2, {kNormExamples})};
}

DistributedDataset<Example> drifting_batches(Strategy& strategy, const Example& data,
                                             int64_t batch = kNormBatch) {
  return strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = batch});
}

template <typename Norm>
Mirrored<NormNet<Norm>> make_norm_net(Strategy& strategy, OptionalMomentum momentum) {
  return strategy.scope([&](ReplicaContext&) { return std::make_shared<NormNetImpl<Norm>>(momentum); });
}

/// Calls the callback as a fit does at the end of its first epoch, with a model that the fit has changed.
template <typename Norm>
void refresh_once(Strategy& strategy, Mirrored<NormNet<Norm>>& model, DistributedDataset<Example> batches,
                  const RefreshBatchNormOptions& options = {}) {
  for (auto& net : model.local_values()) {
    const torch::NoGradGuard no_grad;
    net->norm->running_mean.fill_(123);
    net->norm->running_var.fill_(456);
    net->norm->num_batches_tracked.fill_(9);
  }
  refresh_batch_norm(model, std::move(batches), options)->refresh(strategy, 0);
}

/// The mean over the shards of their mean, and of their unbiased variance.
std::pair<torch::Tensor, torch::Tensor> statistics_of(const std::vector<torch::Tensor>& shards) {
  std::vector<torch::Tensor> means, variances;
  for (const auto& shard : shards) {
    means.push_back(shard.to(torch::kDouble).mean(0));
    variances.push_back(shard.to(torch::kDouble).var(0, /*unbiased=*/true));
  }
  return {torch::stack(means).mean(0).to(torch::kFloat), torch::stack(variances).mean(0).to(torch::kFloat)};
}

template <typename Norm>
void expect_statistics(const NormNet<Norm>& net, const std::vector<torch::Tensor>& shards) {
  const auto [mean, variance] = statistics_of(shards);
  EXPECT_TRUE(torch::allclose(net->norm->running_mean.cpu(), mean, 1e-5, 1e-6))
      << net->norm->running_mean << mean;
  EXPECT_TRUE(torch::allclose(net->norm->running_var.cpu(), variance, 1e-5, 1e-6))
      << net->norm->running_var << variance;
}

TEST(RefreshBatchNorm, AveragesOverTheBatchesWhateverTheMomentum) {
  DefaultStrategy strategy;
  const auto data = drifting_examples();
  for (const OptionalMomentum momentum :
       {OptionalMomentum(0.1), OptionalMomentum(0.01), OptionalMomentum(1.0), OptionalMomentum()}) {
    auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, momentum);
    refresh_once(strategy, model, drifting_batches(strategy, data));
    expect_statistics(model.primary(), data.data.split(kNormBatch));
    EXPECT_EQ(model.primary()->norm->num_batches_tracked.item<int64_t>(), 9);
  }
}

TEST(RefreshBatchNorm, StopsAfterTheGivenNumberOfBatches) {
  DefaultStrategy strategy;
  const auto data = drifting_examples();
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  refresh_once(strategy, model, drifting_batches(strategy, data), {.max_batches = 2});
  expect_statistics(model.primary(), {data.data.slice(0, 0, 8), data.data.slice(0, 8, 16)});
}

TEST(RefreshBatchNorm, KeepsWhatALayerWithoutMomentumHad) {
  DefaultStrategy strategy;
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.0);
  refresh_once(strategy, model, drifting_batches(strategy, drifting_examples()));
  EXPECT_TRUE(torch::equal(model.primary()->norm->running_mean.cpu(), torch::full({kNormFeatures}, 123.0F)));
  EXPECT_TRUE(torch::equal(model.primary()->norm->running_var.cpu(), torch::full({kNormFeatures}, 456.0F)));
}

TEST(RefreshBatchNorm, MeasuresTheShardsOfEachReplica) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto data = drifting_examples();
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  refresh_once(strategy, model, drifting_batches(strategy, data));
  std::vector<torch::Tensor> first, second;
  for (const auto& batch : data.data.split(kNormBatch)) {
    first.push_back(batch.slice(0, 0, batch.size(0) / 2));
    second.push_back(batch.slice(0, batch.size(0) / 2));
  }
  expect_statistics(model.local_values()[0], first);
  expect_statistics(model.local_values()[1], second);
}

TEST(RefreshBatchNorm, MeasuresTheGlobalBatchWithSyncBatchNormAndEmptyShards) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  Example data = drifting_examples();
  data = {data.data.slice(0, 0, 10), data.target.slice(0, 0, 10)};
  auto model = make_norm_net<SyncBatchNorm>(strategy, 0.1);
  refresh_once(strategy, model,
               drifting_batches(strategy, data));  // 8 examples, then 2: the last replica has none
  for (const auto& net : model.local_values()) expect_statistics(net, data.data.split(kNormBatch));
}

TEST(RefreshBatchNorm, LeavesOutEmptyShards) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  Example data = drifting_examples();
  data = {data.data.slice(0, 0, 12), data.target.slice(0, 0, 12)};
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  refresh_once(strategy, model, drifting_batches(strategy, data));  // 8 examples, then 4
  expect_statistics(model.local_values()[0], {data.data.slice(0, 0, 3), data.data.slice(0, 8, 10)});
  expect_statistics(model.local_values()[2], {data.data.slice(0, 6, 8)});  // none of the second batch
}

TEST(RefreshBatchNorm, LeavesLayersInEvaluationModeAlone) {
  DefaultStrategy strategy;
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  model.primary()->norm->eval();
  refresh_once(strategy, model, drifting_batches(strategy, drifting_examples()));
  EXPECT_TRUE(torch::equal(model.primary()->norm->running_mean.cpu(), torch::full({kNormFeatures}, 123.0F)));
  EXPECT_FALSE(model.primary()->norm->is_training());
  EXPECT_TRUE(model.primary()->dropout->is_training());
}

TEST(RefreshBatchNorm, RestoresModesAndStatisticsAfterAnError) {
  DefaultStrategy strategy;
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  model.primary()->fails = true;
  EXPECT_THROW(refresh_once(strategy, model, drifting_batches(strategy, drifting_examples())),
               std::runtime_error);
  EXPECT_TRUE(torch::equal(model.primary()->norm->running_mean.cpu(), torch::full({kNormFeatures}, 123.0F)));
  EXPECT_EQ(model.primary()->norm->num_batches_tracked.item<int64_t>(), 9);
  EXPECT_TRUE(model.primary()->is_training());
  EXPECT_TRUE(model.primary()->dropout->is_training());
}

TEST(RefreshBatchNorm, RefusesToAverageOverNoBatches) {
  DefaultStrategy strategy;
  auto model = make_norm_net<torch::nn::BatchNorm1d>(strategy, 0.1);
  try {
    refresh_once(strategy, model, drifting_batches(strategy, drifting_examples()), {.max_batches = 0});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected max_batches of 1 or more, but got 0"));
  }
}

struct FittedNorm {
  std::vector<torch::Tensor> parameters;
  torch::Tensor running_mean;
  double validation_loss = 0;
};

FittedNorm fit_norm_net(bool refreshes) {
  const auto data = drifting_examples();
  torch::manual_seed(5);  // also of the strategy's random streams
  DefaultStrategy strategy;
  Trainer trainer(
      strategy, [](ReplicaContext&) { return std::make_shared<NormNetImpl<torch::nn::BatchNorm1d>>(0.1); },
      [](const auto& parameters) { return FusedSgd(parameters, FusedSgdOptions(0.1)); }, cross_entropy);
  Callbacks callbacks;
  if (refreshes) callbacks.push_back(refresh_batch_norm(trainer.model(), drifting_batches(strategy, data)));
  const auto history =
      trainer.fit(drifting_batches(strategy, data),
                  {.epochs = 3, .validation = drifting_batches(strategy, data), .callbacks = callbacks});
  const auto& net = trainer.model().primary();
  return {net->parameters(), net->norm->running_mean.cpu(),
          history.epochs.back().find("validation_loss").value()};
}

// Dropout draws random numbers, so it would differ if the callback drew any.
TEST(RefreshBatchNorm, ChangesNothingThatIsTrained) {
  const FittedNorm with = fit_norm_net(true), without = fit_norm_net(false);
  ASSERT_EQ(with.parameters.size(), without.parameters.size());
  for (size_t i = 0; i < with.parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(with.parameters[i], without.parameters[i]));
  EXPECT_FALSE(torch::allclose(with.running_mean, without.running_mean, 1e-2));
  EXPECT_NE(with.validation_loss, without.validation_loss);
}

TEST(RefreshBatchNorm, ValidatesWithTheRefreshedStatistics) {
  const auto data = drifting_examples();
  const auto [mean, variance] = statistics_of(data.data.split(kNormBatch));
  EXPECT_TRUE(torch::allclose(fit_norm_net(true).running_mean, mean, 1e-5, 1e-6));
}

}  // namespace
}  // namespace lockstep
