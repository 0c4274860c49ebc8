#include "lockstep/training/trainer/step_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "lockstep/models/simple_cnn.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StepErrorTest : public ::testing::Test {
 protected:
  History fit(const torch::Tensor& x, const torch::Tensor& y, int64_t batch_size = 4) {
    return trainer_.fit(x, y, {.batches = {.global_batch_size = batch_size}});
  }

  MirroredStrategy strategy_{cpu_devices(1), {.intra_op_threads = 1}};
  Trainer<TanhNet> trainer_{strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(),
                            cross_entropy};
  torch::Tensor x_ = torch::zeros({8, 6}, torch::kDouble);
  torch::Tensor y_ = torch::zeros({8}, torch::kLong);
};

TEST_F(StepErrorTest, NamesTheReplicaLibTorchsReasonAndTheShardInOneLine) {
  EXPECT_EQ(message_of<StepError>([&] {
              fit(torch::zeros({8, 7}, torch::kDouble), y_);
            }),
            "[Trainer] replica 0 (" + cpu_devices(1)[0] +
                ") failed in a training step: mat1 and mat2 shapes cannot be multiplied "
                "(4x7 and 6x5); its shard has data float64 [4, 7] and targets int64 [4]");
}

TEST_F(StepErrorTest, NamesTheReplicaThatFailed) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  Trainer<TanhNet> trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const auto y = torch::tensor({0, 0, 0, 0, 0, 9, 0, 0});  // of replica 1's shard
  EXPECT_THAT(message_of<StepError>([&] { trainer.fit(x_, y, {.batches = {.global_batch_size = 8}}); }),
              AllOf(StartsWith("[Trainer] replica 1 (" + cpu_devices(2)[1] + ") failed in a training step: "),
                    HasSubstr("9 is out of bounds; its"),
                    EndsWith("its shard has data float64 [4, 6] and targets int64 [4]")));
}

TEST_F(StepErrorTest, TellsTheRuleOfClassLabels) {
  const auto rule = EndsWith(
      "; class labels must be int64 of shape [n]: use labels.to(torch::kLong), and labels.squeeze(1) for "
      "shape [n, 1]");
  EXPECT_THAT(message_of<StepError>([&] { fit(x_, y_.to(torch::kInt)); }),
              AllOf(HasSubstr("targets int32 [4]"), rule));
  EXPECT_THAT(message_of<StepError>([&] { fit(x_, y_.unsqueeze(1)); }),
              AllOf(HasSubstr("targets int64 [4, 1]"), rule));
  EXPECT_THAT(message_of<StepError>([&] { fit(x_.to(torch::kFloat), y_); }), Not(HasSubstr("class labels")));
}

TEST_F(StepErrorTest, TellsTheRuleOfTheInputsDtype) {
  const auto rule = EndsWith(
      "; a model's inputs need the dtype of its parameters: use data.to(torch::kFloat) if that is float32");
  EXPECT_THAT(message_of<StepError>([&] { fit(x_.to(torch::kByte), y_); }),
              AllOf(HasSubstr("data uint8 [4, 6]"), rule));
  Trainer<SimpleCnn> images(
      strategy_, [](ReplicaContext&) { return SimpleCnn(); }, momentum_sgd(), cross_entropy);
  EXPECT_THAT(message_of<StepError>([&] {
                images.fit(torch::zeros({4, 1, 28, 28}, torch::kByte), y_.narrow(0, 0, 4));
              }),
              rule);
}

TEST_F(StepErrorTest, KeepsLibTorchsErrorForDebugging) {
  try {
    fit(torch::zeros({8, 7}, torch::kDouble), y_);
    FAIL() << "nothing was thrown";
  } catch (const StepError& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);
  }
}

TEST_F(StepErrorTest, IsThrownByEvaluationAndPredictionToo) {
  const auto wide = torch::zeros({8, 7}, torch::kDouble);
  EXPECT_THAT(message_of<StepError>([&] { trainer_.evaluate(wide, y_); }),
              HasSubstr("failed in an evaluation step: mat1 and mat2"));
  EXPECT_THAT(message_of<StepError>([&] { trainer_.predict(wide); }),
              AllOf(HasSubstr("failed in a prediction: mat1 and mat2"), HasSubstr("float64 [8, 7]")));
}

TEST_F(StepErrorTest, LeavesErrorsOfDevicesAndOfOwnCodeAsTheyAre) {
  const auto fit_that = [&](const std::function<void()>& fail) {
    TrainerOptions<TanhNet> options;
    options.compute = [&](ReplicaContext&, TanhNet&, const Example&) -> StepOutputs {
      fail();
      return {};
    };
    Trainer<TanhNet> trainer(
        strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy, {}, options);
    trainer.fit(x_, y_, {.batches = {.global_batch_size = 4}});
  };
  EXPECT_THROW(fit_that([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate 2.00 GiB. "); }),
               OutOfMemory);
  EXPECT_THROW(fit_that([] { C10_THROW_ERROR(DistError, "a collective failed"); }), c10::DistError);
  EXPECT_THROW(fit_that([] { throw std::out_of_range("mine"); }), std::out_of_range);
}

TEST_F(StepErrorTest, LeavesTheAdviceForShardsOfOneExample) {
  EXPECT_THAT(message_of<std::runtime_error>([&] {
                fit(torch::zeros({8, 7}, torch::kDouble), y_, /*batch_size=*/1);
              }),
              HasSubstr("failed on a shard of 1 of the 1 examples"));
}

}  // namespace
}  // namespace lockstep
