#include "lockstep/training/trainer/validation_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class ValidationDataTest : public ::testing::Test {
 protected:
  History fit(const FitOptions<>& options) {
    torch::manual_seed(17);
    Trainer<TanhNet> trainer(
        strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    return trainer.fit(data_.data, data_.target, options);
  }

  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
  TensorDataset dataset_{data_.data.narrow(0, 0, 7), data_.target.narrow(0, 0, 7)};
};

TEST_F(ValidationDataTest, EveryFormValidatesAsADistributedDatasetDoes) {
  const DistributeOptions batches{.global_batch_size = kBatchSize, .shuffle_seed = 1, .drop_remainder = true};
  const auto distributed = strategy_.distribute_dataset(dataset_, {.global_batch_size = kBatchSize});
  const auto expected = fit({.validation = distributed, .batches = batches}).epochs.at(0);
  const auto expect_same = [&](const FitOptions<>& options) {
    const auto logs = fit(options).epochs.at(0);
    EXPECT_EQ(logs.at("validation_loss"), expected.at("validation_loss"));
  };
  expect_same({.validation = dataset_, .batches = batches});
  expect_same({.validation = {data_.data.narrow(0, 0, 7), data_.target.narrow(0, 0, 7)}, .batches = batches});
  expect_same({.validation = std::optional(distributed), .batches = batches});
}

TEST_F(ValidationDataTest, NoneValidatesNothing) {
  EXPECT_FALSE(fit({}).epochs.at(0).find("validation_loss"));
  EXPECT_FALSE(fit({.validation = std::nullopt}).epochs.at(0).find("validation_loss"));
}

TEST_F(ValidationDataTest, RefusesTensorsOfDifferentNumbersOfRows) {
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                fit({.validation = {data_.data, data_.target.narrow(0, 0, 7)}});
              }),
              HasSubstr("expected as many targets as examples, 13, but got 7"));
}

TEST(FitBatches, AreOf32ExamplesUnlessGivenAnotherSize) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
  Trainer<TanhNet> trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const auto x = torch::zeros({65, 6}, torch::kDouble);
  const auto y = torch::zeros({65}, torch::kLong);
  EXPECT_EQ(trainer.fit(x, y).steps, 3);
  EXPECT_EQ(trainer.fit(x, y, {.batches = {}}).steps, 3);
  EXPECT_EQ(trainer.fit(x, y, {.batches = {.shuffle_seed = 7}}).steps, 3);
  EXPECT_EQ(trainer.fit(x, y, {.batches = {.global_batch_size = 65}}).steps, 1);
  for (const int64_t size : {0, -1}) {
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { trainer.fit(x, y, {.batches = {.global_batch_size = size}}); }),
        HasSubstr("global batch size of 1 or more, but got " + std::to_string(size)));
  }
}

}  // namespace
}  // namespace lockstep
