#include "lockstep/training/averaging/stochastic_weight_averaging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/averaging/averaged_fit.h"
#include "lockstep/training/callbacks/backup_and_restore.h"

namespace lockstep {
namespace {

using testing::AveragedFit;
using testing::expect_bits;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::interrupt_after;
using testing::NormNet;
using testing::NoteWeights;
using testing::Tensors;
using SwaOptions = StochasticWeightAveragingOptions;

std::shared_ptr<StochasticWeightAveraging> averaging_by(const SwaOptions& options) {
  return std::make_shared<StochasticWeightAveraging>(options);
}

Tensors mean_of(const std::vector<Tensors>& all) {
  Tensors mean;
  for (size_t i = 0; i < all.front().size(); ++i) {
    torch::Tensor sum = torch::zeros_like(all.front()[i]);
    for (const auto& tensors : all) sum += tensors[i];
    mean.push_back(sum / static_cast<double>(all.size()));
  }
  return mean;
}

/// The parameters of replica 0 at the ends of epochs, counted from 1.
std::vector<Tensors> at_ends_of(const NoteWeights& noted, const std::vector<size_t>& epochs) {
  std::vector<Tensors> all;
  for (const size_t epoch : epochs)
    all.push_back(noted.after_steps[epoch * AveragedFit::kSteps - 1][0].parameters);
  return all;
}

TEST(StochasticWeightAveraging, LeavesTheMeanOfTheEpochsWeightsInTheModel) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  const auto averaging = averaging_by({.start_epoch = 3});
  fit.fit(5, {noted, averaging});
  EXPECT_EQ(averaging->num_averaged(), 3);
  const auto weights = fit.weights();
  expect_near(weights[0].parameters, mean_of(at_ends_of(*noted, {3, 4, 5})), "parameter");
  expect_bits(weights[1].parameters, weights[0].parameters, "replica 1's parameter");
}

TEST(StochasticWeightAveraging, CountsEveryFewEpochs) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  fit.fit(5, {noted, averaging_by({.start_epoch = 2, .every_epochs = 2})});
  expect_near(fit.weights()[0].parameters, mean_of(at_ends_of(*noted, {2, 4})), "parameter");
}

TEST(StochasticWeightAveraging, ComputesBatchNormsStatisticsAnew) {
  AveragedFit fit(1);
  fit.fit(3, {averaging_by({.start_epoch = 2})});
  // The formula of PyTorch's update_bn(): the mean of the batches' own statistics, the unbiased variance.
  auto& net = fit.trainer->model().primary();
  const auto batches = fit.strategy.distribute_dataset(detail::TensorPairs(fit.data, fit.target),
                                                       {.global_batch_size = 8, .shuffle_seed = 5});
  auto next = batches;
  next.restore({3, 0});  // the epoch after the last one
  const torch::NoGradGuard no_grad;
  torch::Tensor mean = torch::zeros({5}, torch::kDouble), variance = torch::zeros({5}, torch::kDouble);
  for (const auto& batch : next) {
    const auto inputs = net->first(batch.local_values()[0].data);
    mean += inputs.mean(0).cpu() / AveragedFit::kSteps;
    variance += inputs.var(0, /*unbiased=*/true).cpu() / AveragedFit::kSteps;
  }
  EXPECT_TRUE(torch::allclose(net->norm->running_mean.cpu(), mean, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(net->norm->running_var.cpu(), variance, 1e-12, 1e-12));
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 3 * AveragedFit::kSteps)
      << "counts the batches that were trained";
  EXPECT_EQ(net->norm->options.momentum(), 0.1);
}

TEST(StochasticWeightAveraging, IsValidatedInTheLastEpochOnly) {
  AveragedFit plain, averaged;
  const auto expected = plain.fit(3, {});
  const auto history = averaged.fit(3, {averaging_by({.start_epoch = 2})});
  for (size_t epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(history.epochs[epoch].at("validation_loss"), expected.epochs[epoch].at("validation_loss"));
  const auto again = averaged.trainer->evaluate(averaged.data, averaged.target, {.global_batch_size = 8});
  EXPECT_EQ(history.epochs.back().at("validation_loss"), again.logs.at("loss"));
  EXPECT_NE(history.epochs.back().at("validation_loss"), expected.epochs.back().at("validation_loss"));
}

TEST(StochasticWeightAveraging, LeavesTheTrainingItselfAlone) {
  AveragedFit plain, averaged;
  const auto noted = std::make_shared<NoteWeights>(), expected = std::make_shared<NoteWeights>();
  plain.fit(4, {expected});
  averaged.fit(4, {noted, averaging_by({.evaluate_every_epoch = true})});
  ASSERT_EQ(noted->after_steps.size(), expected->after_steps.size());
  for (size_t step = 0; step < noted->after_steps.size(); ++step) {
    for (size_t replica = 0; replica < 2; ++replica) {
      expect_bits(noted->after_steps[step][replica].parameters,
                  expected->after_steps[step][replica].parameters, "parameter");
    }
  }
}

TEST(StochasticWeightAveraging, SetsItsLearningRate) {
  AveragedFit fit;
  std::vector<double> rates;
  fit.fit(3, {averaging_by({.start_epoch = 2, .learning_rate = 0.5}),
              testing::after_every_step([&](FitState& state) { rates.push_back(state.learning_rate()); })});
  EXPECT_EQ(rates, (std::vector<double>{0.1, 0.1, 0.5, 0.5, 0.5, 0.5}));
}

TEST(StochasticWeightAveraging, IsLeftInTheModelIfTheFitStopsEarly) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  const auto stops = testing::after_step(5, [](FitState& state) { state.stop("enough"); });
  fit.fit(9, {noted, averaging_by({}), stops});  // in the third epoch
  expect_near(fit.weights()[0].parameters, mean_of(at_ends_of(*noted, {1, 2})), "parameter");
}

/// The parameters are the step at which the process of the first of two fits ends, and whether every epoch is
/// evaluated.
class ResumedStochasticWeightAveraging : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(ResumedStochasticWeightAveraging, EqualsThatOfAnUninterruptedFit) {
  const auto [step, evaluates] = GetParam();
  const testing::TemporaryFolder folder;
  const auto backup = [&] {
    return std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
  };
  const SwaOptions options{.start_epoch = 2, .evaluate_every_epoch = evaluates};
  AveragedFit whole;
  const auto expected = whole.fit(4, {averaging_by(options)});
  {
    AveragedFit first;
    first.fit(4, {backup(), interrupt_after(step), averaging_by(options)});
  }
  AveragedFit second;
  const auto history = second.fit(4, {backup(), averaging_by(options)});
  for (size_t replica = 0; replica < 2; ++replica) {
    expect_bits(second.weights()[replica].parameters, whole.weights()[replica].parameters, "parameter");
    expect_bits(second.weights()[replica].buffers, whole.weights()[replica].buffers, "buffer");
  }
  EXPECT_EQ(history.epochs.back().at("validation_loss"), expected.epochs.back().at("validation_loss"));
}

// Before the average begins, at the end of its first epoch, and later.
INSTANTIATE_TEST_SUITE_P(AfterStep, ResumedStochasticWeightAveraging,
                         ::testing::Combine(::testing::Values(1, 4, 7), ::testing::Bool()));

TEST(StochasticWeightAveraging, IsFoundAgainByAFitThatHadEnded) {
  const testing::TemporaryFolder folder;
  const auto backup = [&] {
    return std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
  };
  AveragedFit first, second;
  first.fit(3, {averaging_by({}), backup()});
  second.fit(3, {averaging_by({}), backup()});
  for (size_t replica = 0; replica < 2; ++replica) {
    expect_bits(second.weights()[replica].parameters, first.weights()[replica].parameters, "parameter");
    expect_bits(second.weights()[replica].buffers, first.weights()[replica].buffers, "buffer");
  }
}

TEST(StochasticWeightAveraging, RefusesWrongOptions) {
  EXPECT_THAT(message_of<InvalidArgument>([] { averaging_by({.start_epoch = 0}); }),
              HasSubstr("start_epoch of 1 or more, but got 0"));
  EXPECT_THAT(message_of<InvalidArgument>([] { averaging_by({.every_epochs = 0}); }),
              HasSubstr("every_epochs of 1 or more, but got 0"));
  EXPECT_THAT(message_of<InvalidArgument>([] { averaging_by({.learning_rate = 0}); }),
              HasSubstr("a positive learning rate, but got 0"));
  AveragedFit fit;
  EXPECT_THAT(message_of<InvalidArgument>([&] { fit.fit(2, {averaging_by({.start_epoch = 3})}); }),
              HasSubstr("at most the fit's 2 epochs, but got 3"));
}

}  // namespace
}  // namespace lockstep
