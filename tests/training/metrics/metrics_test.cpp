#include "lockstep/training/metrics/metrics.h"

#include <gtest/gtest.h>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {
namespace {

double mean_of(const Mean& mean) {
  return mean.total() / mean.count();
}

TEST(Mean, IsTheSumOfAllValuesOverTheirNumberHoweverTheyCome) {
  Mean mean;
  mean.update(torch::tensor({1.0F, 2.0F, 6.0F}));
  mean.update(torch::tensor({{3.0F}, {8.0F}}));
  mean.update(torch::tensor(10.0));  // a scalar is one value
  EXPECT_EQ(mean.total(), 30.0);
  EXPECT_EQ(mean.count(), 6.0);
}

TEST(Mean, BeginsAnewAfterInferenceMode) {
  Mean mean;
  {
    const c10::InferenceMode guard;
    mean.update(torch::ones({2}));
    EXPECT_EQ(mean.total(), 2);
  }
  mean.reset();
  mean.update(torch::full({1}, 3.0));
  EXPECT_EQ(mean.total(), 3);
  EXPECT_EQ(mean.count(), 1);
}

TEST(Mean, WeighsValues) {
  Mean mean;
  mean.update(torch::tensor({1.0, 5.0}), torch::tensor({3.0, 1.0}));  // (3 + 5) / 4
  EXPECT_DOUBLE_EQ(mean_of(mean), 2.0);
  mean.update(torch::tensor({7.0}));  // (8 + 7) / 5
  EXPECT_DOUBLE_EQ(mean_of(mean), 3.0);
}

TEST(Mean, BroadcastsWeightsAndCountsThemOnceAValue) {
  Mean mean;
  mean.update(torch::tensor({{1.0, 2.0}, {3.0, 4.0}}), torch::tensor({{1.0}, {0.5}}));
  EXPECT_DOUBLE_EQ(mean.total(), 6.5);
  EXPECT_DOUBLE_EQ(mean.count(), 3.0);
  EXPECT_THROW(mean.update(torch::ones({2}), torch::ones({3})), InvalidArgument);
  EXPECT_THROW(mean.update(torch::ones({2}), torch::ones({2, 2})), InvalidArgument);
}

TEST(Mean, KeepsWhatFloat32WouldLose) {
  Mean mean;
  mean.update(torch::full({1}, 16777216.0F));  // 2^24: in float32, adding 1 changes nothing
  for (int i = 0; i < 8; ++i) mean.update(torch::ones({1}));
  EXPECT_EQ(mean.total(), 16777224.0);
}

TEST(Mean, HoldsNoGraph) {
  auto values = torch::ones({3}, torch::requires_grad());
  Mean mean;
  mean.update(values * 2);
  mean.update(values * 2);
  EXPECT_EQ(mean.total(), 12.0);
  EXPECT_EQ(values.use_count(), 1U);  // a graph would hold the leaf
}

TEST(Mean, BeginsAnewAfterReset) {
  Mean mean;
  mean.update(torch::ones({3}), torch::ones({3}));
  mean.reset();
  EXPECT_EQ(mean.count(), 0.0);
  mean.update(torch::tensor({4.0}));
  EXPECT_EQ(mean_of(mean), 4.0);
}

const auto kLogits =
    torch::tensor({{0.1F, 0.7F, 0.2F}, {0.9F, 0.0F, 0.1F}, {0.3F, 0.3F, 0.4F}, {5.F, 1.F, 1.F}});
const auto kTargets = torch::tensor({1, 2, 2, 0});  // the second is wrong

TEST(CategoricalAccuracy, IsTheShareOfLargestLogitsAtTheTarget) {
  CategoricalAccuracy accuracy;
  accuracy.update(kLogits, kTargets);
  EXPECT_EQ(accuracy.total(), 3.0);
  EXPECT_EQ(accuracy.count(), 4.0);
}

TEST(CategoricalAccuracy, IsEqualForIntegerAndOneHotTargets) {
  torch::manual_seed(2);
  const auto logits = torch::randn({50, 7});
  const auto targets = torch::randint(0, 7, {50});
  const auto one_hot = torch::one_hot(targets, 7);
  double expected = 0;
  for (int64_t i = 0; i < 50; ++i) {
    int64_t best = 0;
    for (int64_t j = 1; j < 7; ++j)
      if (logits[i][j].item<float>() > logits[i][best].item<float>()) best = j;
    if (best == targets[i].item<int64_t>()) ++expected;
  }
  for (const auto& given : {targets, targets.to(torch::kInt), one_hot, one_hot.to(torch::kFloat)}) {
    CategoricalAccuracy accuracy;
    accuracy.update(logits, given);
    EXPECT_EQ(accuracy.total(), expected) << given.dtype();
    EXPECT_EQ(accuracy.count(), 50.0);
  }
}

TEST(CategoricalAccuracy, WeighsExamples) {
  CategoricalAccuracy accuracy;
  accuracy.update(kLogits, kTargets, torch::tensor({1.0, 3.0, 0.0, 2.0}));
  EXPECT_DOUBLE_EQ(accuracy.total(), 3.0);
  EXPECT_DOUBLE_EQ(accuracy.count(), 6.0);
}

TEST(CategoricalAccuracy, AddsNothingForAnEmptyShard) {
  CategoricalAccuracy accuracy;
  accuracy.update(torch::empty({0, 3}), torch::empty({0}, torch::kLong));
  accuracy.update(torch::empty({0, 3}), torch::empty({0, 3}));
  EXPECT_EQ(accuracy.count(), 0.0);
  EXPECT_EQ(accuracy.total(), 0.0);
}

TEST(CategoricalAccuracy, RefusesWhatIsNoPairOfLogitsAndTargets) {
  CategoricalAccuracy accuracy;
  EXPECT_THROW(accuracy.update(torch::ones({4}), kTargets), InvalidArgument);
  EXPECT_THROW(accuracy.update(kLogits, torch::ones({3}, torch::kLong)), InvalidArgument);
  EXPECT_THROW(accuracy.update(kLogits, torch::ones({4, 2})), InvalidArgument);
  EXPECT_THROW(accuracy.update(kLogits, torch::ones({4})), InvalidArgument);  // not integers
  EXPECT_THROW(accuracy.update(kLogits, kTargets, torch::ones({4, 1})), InvalidArgument);
  EXPECT_EQ(accuracy.count(), 0.0);
}

TEST(Metrics, OverUnevenAndEmptyShardsEqualTheWhole) {
  torch::manual_seed(4);
  const auto logits = torch::randn({13, 3}, torch::kDouble);
  const auto targets = torch::randint(0, 3, {13});
  const double expected_accuracy = logits.argmax(1).eq(targets).to(torch::kDouble).mean().item<double>();
  const double expected_mean = logits.mean().item<double>();
  for (const int replicas : {1, 2, 3, 4}) {
    MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
    auto accuracy = strategy.scope([](ReplicaContext&) { return CategoricalAccuracy(); });
    auto mean = strategy.scope([](ReplicaContext&) { return Mean(); });
    // Batches of 4: the last has one example, so that most replicas get none.
    auto batches = strategy.distribute_dataset(TensorDataset(logits, targets), {.global_batch_size = 4});
    for (int epoch = 0; epoch < 2; ++epoch) {
      reset(accuracy);
      reset(mean);
      EXPECT_EQ(result(accuracy), 0.0);
      for (const auto& batch : batches) {
        strategy.run(
            [](ReplicaContext&, CategoricalAccuracy& accuracy, Mean& mean, const Example& batch) {
              accuracy.update(batch.data, batch.target);
              mean.update(batch.data);
            },
            accuracy, mean, batch);
      }
      EXPECT_DOUBLE_EQ(result(accuracy), expected_accuracy) << replicas << " replicas";
      EXPECT_NEAR(result(mean), expected_mean, 1e-15) << replicas << " replicas";
    }
  }
}

}  // namespace
}  // namespace lockstep
