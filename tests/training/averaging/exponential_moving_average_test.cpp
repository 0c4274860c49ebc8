#include "lockstep/training/averaging/exponential_moving_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/averaging/averaged_fit.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/model_checkpoint.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/formats/safetensors.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

using testing::AveragedFit;
using testing::copies_of;
using testing::expect_bits;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::interrupt_after;
using testing::NoteWeights;
using testing::Tensors;
using testing::Weights;
using EmaOptions = ExponentialMovingAverageOptions;

std::shared_ptr<ExponentialMovingAverage> average_by(const EmaOptions& options) {
  return std::make_shared<ExponentialMovingAverage>(options);
}

/// The formula: the first values, then decay(n) * average + (1 - decay(n)) * values at update n.
template <typename Decay>
Tensors average_of(const std::vector<Tensors>& values, const Decay& decay) {
  Tensors average = copies_of(values.front());
  for (size_t n = 1; n < values.size(); ++n) {
    for (size_t i = 0; i < average.size(); ++i) {
      if (!average[i].is_floating_point()) {
        average[i] = values[n][i];
      } else {
        average[i] = decay(n) * average[i] + (1 - decay(n)) * values[n][i];
      }
    }
  }
  return average;
}

std::vector<Tensors> parameters_of(const NoteWeights& noted, size_t replica = 0) {
  std::vector<Tensors> values;
  for (const auto& step : noted.after_steps) values.push_back(step[replica].parameters);
  return values;
}

/// Means over both replicas: validation sets each replica's buffers to them.
Tensors mean_buffers(const std::vector<Weights>& weights) {
  Tensors means;
  for (size_t i = 0; i < weights[0].buffers.size(); ++i)
    means.push_back(
        aggregate_values("", BufferAggregation::kMean, {weights[0].buffers[i], weights[1].buffers[i]}));
  return means;
}

std::vector<Tensors> buffers_of(const NoteWeights& noted) {
  std::vector<Tensors> values;
  for (const auto& step : noted.after_steps) values.push_back(mean_buffers(step));
  return values;
}

TEST(ExponentialMovingAverage, FollowsItsFormulaOnEveryReplica) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  fit.fit(3, {noted, average_by({.decay = 0.75})});
  const auto decay = [](size_t) { return 0.75; };
  const auto weights = fit.weights();
  expect_near(weights[0].parameters, average_of(parameters_of(*noted), decay), "parameter");
  expect_bits(weights[1].parameters, weights[0].parameters, "replica 1's parameter");
  for (size_t replica = 0; replica < 2; ++replica)
    expect_near(weights[replica].buffers, average_of(buffers_of(*noted), decay), "buffer");
}

TEST(ExponentialMovingAverage, HasTheModelsOwnBuffersIfAsked) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  fit.fit(2, {noted, average_by({.decay = 0.75, .average_buffers = false})});
  const auto weights = fit.weights();
  for (size_t replica = 0; replica < 2; ++replica)
    expect_near(weights[replica].buffers, mean_buffers(noted->after_steps.back()), "buffer");
}

TEST(ExponentialMovingAverage, WarmsUpAsTensorFlowsDoes) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  fit.fit(3, {noted, average_by({.decay = 0.3, .warm_up = true})});
  const auto decay = [](size_t n) {
    return std::min(0.3, (1 + static_cast<double>(n)) / (10 + static_cast<double>(n)));
  };
  expect_near(fit.weights()[0].parameters, average_of(parameters_of(*noted), decay), "parameter");
}

TEST(ExponentialMovingAverage, CountsEveryFewSteps) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  const auto average = average_by({.decay = 0.5, .every_steps = 3});
  fit.fit(4, {noted, average});  // 8 steps
  EXPECT_EQ(average->num_updates(), 2);
  const auto all = parameters_of(*noted);
  expect_near(fit.weights()[0].parameters, average_of({all[2], all[5]}, [](size_t) { return 0.5; }),
              "parameter");
}

TEST(ExponentialMovingAverage, LeavesTheTrainingItselfAlone) {
  AveragedFit plain, averaged;
  plain.fit(3, {});
  averaged.fit(3, {average_by({.keep_at_end = false})});
  for (size_t replica = 0; replica < 2; ++replica)
    expect_bits(averaged.weights()[replica].parameters, plain.weights()[replica].parameters, "parameter");
}

TEST(ExponentialMovingAverage, IsWhatAnEpochsEndValidatesAndSaves) {
  const testing::TemporaryFolder folder;
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  const auto checkpoint =
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder.path(), .save_best = false});
  const auto history = fit.fit(2, {noted, average_by({.decay = 0.75}), checkpoint});
  const auto expected = average_of(parameters_of(*noted), [](size_t) { return 0.75; });
  expect_near(noted->in_validation.back()[0].parameters, expected, "validated parameter");
  testing::NormNet saved;
  load_state_dict(*saved, load_safetensors(folder.file("last.safetensors")).tensors);
  expect_bits(copies_of(saved->parameters()), noted->in_validation.back()[0].parameters, "saved parameter");
  // The model holds the average now, too: the same evaluation gives the same loss.
  const auto again = fit.trainer->evaluate(fit.data, fit.target, {.global_batch_size = AveragedFit::kBatch});
  EXPECT_EQ(history.epochs.back().at("validation_loss"), again.logs.at("loss"));
}

TEST(ExponentialMovingAverage, IsNotEvaluatedIfSwitchedOff) {
  AveragedFit plain, averaged;
  const auto expected = plain.fit(2, {});
  const auto history = averaged.fit(2, {average_by({.decay = 0.75, .evaluate = false})});
  for (size_t epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(history.epochs[epoch].at("validation_loss"), expected.epochs[epoch].at("validation_loss"));
}

/// The parameter is the step at which the process of the first of two fits ends.
class ResumedExponentialMovingAverage : public ::testing::TestWithParam<int64_t> {};

TEST_P(ResumedExponentialMovingAverage, EqualsThatOfAnUninterruptedFit) {
  const testing::TemporaryFolder folder;
  const auto backup = [&] {
    return std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
  };
  AveragedFit whole;
  const auto expected = whole.fit(3, {average_by({.decay = 0.75, .warm_up = true})});
  {
    AveragedFit first;
    first.fit(3, {backup(), interrupt_after(GetParam()), average_by({.decay = 0.75, .warm_up = true})});
  }
  AveragedFit second;
  const auto history = second.fit(3, {backup(), average_by({.decay = 0.75, .warm_up = true})});
  for (size_t replica = 0; replica < 2; ++replica) {
    expect_bits(second.weights()[replica].parameters, whole.weights()[replica].parameters, "parameter");
    expect_bits(second.weights()[replica].buffers, whole.weights()[replica].buffers, "buffer");
  }
  EXPECT_EQ(history.epochs.back().at("validation_loss"), expected.epochs.back().at("validation_loss"));
}

// In the first epoch, at its end, and in a later one. BackupAndRestore also saves each epoch, while the
// average may be in the model, as it comes before the average here.
INSTANTIATE_TEST_SUITE_P(AfterStep, ResumedExponentialMovingAverage, ::testing::Values(1, 2, 5));

TEST(ExponentialMovingAverage, IsRestoredOnAnotherNumberOfReplicas) {
  const testing::TemporaryFolder folder;
  const auto backup = [&] {
    return std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
  };
  AveragedFit two(2);
  two.fit(2, {average_by({.decay = 0.75}), backup()});
  AveragedFit one(1);
  one.fit(2, {average_by({.decay = 0.75}), backup()});  // it is at its end already
  const auto of_two = two.weights();
  const auto of_one = one.weights();
  expect_bits(of_one[0].parameters, of_two[0].parameters, "parameter");
  for (size_t i = 0; i < 2; ++i) {
    const auto mean = (of_two[0].buffers[i] + of_two[1].buffers[i]) / 2;
    EXPECT_TRUE(torch::allclose(of_one[0].buffers[i], mean, 1e-12, 1e-12)) << i;
  }
}

TEST(ExponentialMovingAverage, BeginsAnewIfUndoneStepsHaveBrokenIt) {
  AveragedFit fit;
  const auto noted = std::make_shared<NoteWeights>();
  const auto breaks = testing::after_step(2, [](FitState& state) {
    const torch::NoGradGuard no_grad;
    for (const auto& module : state.objects().modules)
      module->parameters().front().fill_(std::numeric_limits<double>::quiet_NaN());
  });
  // The average takes the broken weights, because the guard only looks at the epoch's end.
  const auto guard = std::make_shared<NanGuard>(
      NanGuardOptions{.action = NotFiniteAction::kRollBack, .on_message = [](const std::string&) {}});
  fit.fit(3, {guard, breaks, noted, average_by({.decay = 0.75})});
  EXPECT_EQ(guard->num_undone(), 2);
  const auto all = parameters_of(*noted);
  expect_near(fit.weights()[0].parameters,
              average_of({all.begin() + 2, all.end()}, [](size_t) { return 0.75; }), "parameter");
}

TEST(ExponentialMovingAverage, RefusesWrongOptions) {
  EXPECT_THAT(message_of<InvalidArgument>([] { average_by({.decay = 1}); }),
              HasSubstr("a decay of at least 0 and below 1, but got 1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { average_by({.every_steps = 0}); }),
              HasSubstr("every_steps of 1 or more, but got 0"));
}

}  // namespace
}  // namespace lockstep
