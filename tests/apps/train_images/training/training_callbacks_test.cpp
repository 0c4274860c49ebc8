#include "lockstep/apps/train_images/training/training_callbacks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lockstep/tests/training/averaging/averaged_fit.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::AveragedFit;
using lockstep::testing::copies_of;
using lockstep::testing::expect_bits;
using lockstep::testing::expect_near;
using lockstep::testing::NoteWeights;
using lockstep::testing::Tensors;

constexpr int64_t kEpochs = 4;
constexpr double kConstantRate = 0.125;

/// Trains a small model with the callbacks that the options select, and notes its weights.
struct TrainedFit : AveragedFit {
  explicit TrainedFit(TrainOptions options) {
    options.epochs = kEpochs;
    options.schedule = ScheduleKind::kConstant;
    const TrainPlan plan{.global_batch_size = kBatch,
                         .steps_per_epoch = kSteps,
                         .learning_rate = kConstantRate,
                         .num_steps = kSteps * kEpochs};
    // Before the others, it sees the weights that are trained; in a validation, those that are tested.
    Callbacks callbacks = training_callbacks(options, plan, std::nullopt, [](const std::string&) {});
    callbacks.insert(callbacks.begin(), noted);
    history = fit(kEpochs, callbacks);
  }
  /// The parameters of replica 0 after a step, counted from 0.
  const Tensors& after_step(size_t step) const { return noted->after_steps.at(step)[0].parameters; }
  const Tensors& in_validation(size_t epoch) const { return noted->in_validation.at(epoch)[0].parameters; }

  std::shared_ptr<NoteWeights> noted = std::make_shared<NoteWeights>();
  History history;
};

TEST(TrainingCallbacks, AverageExponentiallyAndTestTheAverage) {
  constexpr double kDecay = 0.25;  // reached at the second update
  TrainedFit trained({.ema = kDecay});
  Tensors average = copies_of(trained.after_step(0));
  for (size_t step = 1; step < AveragedFit::kSteps * kEpochs; ++step) {
    const auto n = static_cast<double>(step);
    const double decay = std::min(kDecay, (1 + n) / (10 + n));
    for (size_t i = 0; i < average.size(); ++i)
      average[i] = decay * average[i] + (1 - decay) * trained.after_step(step)[i];
    if (step % AveragedFit::kSteps == 1)
      expect_near(trained.in_validation(step / AveragedFit::kSteps), average, "tested parameter");
  }
  expect_near(trained.weights()[0].parameters, average, "parameter");
  const auto tested = trained.trainer->evaluate(trained.data, trained.target, {.global_batch_size = 8});
  EXPECT_EQ(trained.history.epochs.back().at("validation_loss"), tested.logs.at("loss"));
}

TEST(TrainingCallbacks, AverageTheLastEpochsAndTestTheAverageAtTheEnd) {
  TrainedFit trained({.swa_start = 3, .swa_learning_rate = 0.5});
  Tensors mean = copies_of(trained.after_step(5));
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + trained.after_step(7)[i]) / 2;
  expect_bits(trained.in_validation(2), trained.after_step(5), "parameter tested in epoch 3");
  expect_near(trained.in_validation(3), mean, "parameter tested in epoch 4");
  expect_near(trained.weights()[0].parameters, mean, "parameter");
  const auto rate_of = [&](size_t epoch) { return trained.history.epochs.at(epoch).at("learning_rate"); };
  EXPECT_EQ(rate_of(1), kConstantRate);
  EXPECT_EQ(rate_of(2), 0.5);
  EXPECT_EQ(rate_of(3), 0.5);
}

TEST(TrainingCallbacks, LeaveTheWeightsAloneUnlessAsked) {
  TrainedFit trained{TrainOptions{}};
  expect_bits(trained.weights()[0].parameters, trained.after_step(7), "parameter");
}

}  // namespace
}  // namespace lockstep::apps
