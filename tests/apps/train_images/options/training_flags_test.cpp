#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "lockstep/tests/apps/train_images/options/parsed_arguments.h"

namespace lockstep::apps {
namespace {

TEST(TrainingFlags, ReadsEveryTrainingFlag) {
  const auto options = options_of({"--epochs", "3", "--steps-per-epoch", "20", "--global-batch-size", "256",
                                   "--optimizer", "sgd", "--momentum", "0.5", "--learning-rate", "1e-2",
                                   "--learning-rate-schedule", "constant", "--scale-learning-rate",
                                   "--base-batch-size", "128", "--seed", "18446744073709551615"});
  EXPECT_EQ(options.epochs, 3);
  EXPECT_EQ(options.steps_per_epoch, 20);
  EXPECT_EQ(options.global_batch_size, 256);
  EXPECT_EQ(options.optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(options.momentum, 0.5);
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.schedule, ScheduleKind::kConstant);
  EXPECT_TRUE(options.scale_learning_rate);
  EXPECT_EQ(options.base_batch_size, 128);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options_of({"--per-replica-batch-size", "8"}).per_replica_batch_size, 8);
  EXPECT_EQ(options_of({"--learning-rate-schedule", "cosine"}).schedule, ScheduleKind::kCosine);
  EXPECT_EQ(options_of({"--optimizer", "adamw"}).optimizer, OptimizerKind::kAdamW);
}

TEST(TrainingFlags, ReadsEveryPrecision) {
  for (const auto precision : {PrecisionKind::kFloat32, PrecisionKind::kIeee, PrecisionKind::kFloat64,
                               PrecisionKind::kTf32, PrecisionKind::kBFloat16, PrecisionKind::kFloat16}) {
    EXPECT_EQ(options_of({"--precision", precision_name(precision)}).precision, precision);
  }
}

TEST(TrainingFlags, ReadsEverySchedule) {
  for (const auto schedule : {ScheduleKind::kCosine, ScheduleKind::kConstant, ScheduleKind::kStep,
                              ScheduleKind::kReduceOnPlateau}) {
    EXPECT_EQ(options_of({"--learning-rate-schedule", schedule_name(schedule)}).schedule, schedule);
  }
  const auto options = options_of({"--learning-rate-schedule", "reduce_on_plateau", "--schedule-step-epochs",
                                   "3", "--schedule-factor", "0.5", "--warmup-epochs", "0.25"});
  EXPECT_EQ(options.schedule_step_epochs, 3);
  EXPECT_EQ(options.schedule_factor, 0.5);
  EXPECT_EQ(options.warmup_epochs, 0.25);
  EXPECT_EQ(options_of({}).schedule_step_epochs, 2);
  EXPECT_EQ(options_of({}).schedule_factor, 0.1);
  EXPECT_EQ(options_of({}).warmup_epochs, 0);
}

TEST(TrainingFlags, ReadsEveryFlagAboutGradientsAndTheEnd) {
  const auto options = options_of({"--clip-norm", "1.5", "--accumulate-steps", "4", "--early-stopping", "3"});
  EXPECT_EQ(options.clip_norm, 1.5);
  EXPECT_EQ(options.accumulate_steps, 4);
  EXPECT_EQ(options.early_stopping, 3);
  EXPECT_EQ(options_of({"--early-stopping", "0"}).early_stopping, 0);
  EXPECT_EQ(options_of({}).clip_norm, 0);
  EXPECT_EQ(make_plan(options, 1, 60000).micro_batches, 4);
  EXPECT_EQ(make_plan(options_of({}), 1, 60000).micro_batches, 1);
  EXPECT_EQ(options_of({}).early_stopping, 0);
}

TEST(TrainingFlags, RefusesBothBatchSizes) {
  EXPECT_EQ(
      refusal({"--global-batch-size", "64", "--per-replica-batch-size", "32"}),
      "--global-batch-size 64: expected one of --global-batch-size and --per-replica-batch-size, but got "
      "both");
}

TEST(TrainingFlags, AveragesTheWeightsInOneOfTwoWays) {
  EXPECT_EQ(options_of({}).ema, 0);
  EXPECT_EQ(options_of({"--ema", "0.999"}).ema, 0.999);
  const auto swa = options_of({"--swa-start", "4", "--swa-learning-rate", "0.05"});
  EXPECT_EQ(swa.swa_start, 4);
  EXPECT_EQ(swa.swa_learning_rate, 0.05);
  EXPECT_EQ(options_of({"--swa-start", "4", "--fast-dev-run"}).swa_start, 1);
  for (const std::string decay : {"0", "1", "-0.5", "many"})
    EXPECT_EQ(refusal({"--ema", decay}),
              "--ema: expected a number above 0 and below 1, but got '" + decay + "'");
  EXPECT_EQ(refusal({"--swa-start", "0"}),
            "--swa-start: expected a whole number from 1 to 1000000000, but got '0'");
  EXPECT_EQ(refusal({"--swa-start", "6"}), "--swa-start 6: expected at most the 5 of --epochs");
  EXPECT_EQ(refusal({"--swa-learning-rate", "0.1"}), "--swa-learning-rate 0.1: expected --swa-start with it");
  EXPECT_EQ(refusal({"--swa-start", "4", "--swa-learning-rate", "0"}),
            "--swa-learning-rate: expected a number above 0, but got '0'");
  EXPECT_EQ(refusal({"--ema", "0.9", "--swa-start", "4"}),
            "--ema 0.9: expected one of --ema and --swa-start, but got both");
}

TEST(TrainingFlags, RefusesAWarmUpThatIsLongerThanTheTraining) {
  EXPECT_EQ(refusal({"--epochs", "2", "--warmup-epochs", "2.5"}),
            "--warmup-epochs 2.5: expected at most the 2 of --epochs");
  EXPECT_EQ(options_of({"--epochs", "2", "--warmup-epochs", "2"}).warmup_epochs, 2);
  for (const std::string text : {"-1", "nan", "inf", "x"}) {
    EXPECT_EQ(refusal({"--warmup-epochs", text}),
              "--warmup-epochs: expected a number of 0 or more, but got '" + text + "'");
  }
}

TEST(TrainingFlags, RefusesWhatIsNoNormAndNoFactor) {
  for (const std::string text : {"0", "-1", "nan", "inf", "x"}) {
    EXPECT_EQ(refusal({"--clip-norm", text}),
              "--clip-norm: expected a number above 0, but got '" + text + "'");
  }
  for (const std::string text : {"0", "1", "-1", "nan", "x"}) {
    EXPECT_EQ(refusal({"--learning-rate-schedule", "step", "--schedule-factor", text}),
              "--schedule-factor: expected a number above 0 and below 1, but got '" + text + "'");
  }
}

TEST(TrainingFlags, RefusesEpochsAndStepsOfWhichThereWouldBeTooManyToCount) {
  for (const std::string flag : {"--epochs", "--steps-per-epoch"}) {
    EXPECT_EQ(refusal({flag, "1000000001"}),
              flag + ": expected a whole number from 1 to 1000000000, but got '1000000001'");
  }
  const auto most = options_of({"--epochs", "1000000000", "--steps-per-epoch", "1000000000"});
  EXPECT_EQ(make_plan(most, 1, 60000).num_steps, 1'000'000'000'000'000'000);
}

TEST(TrainingFlags, RefusesWhatIsNoLearningRate) {
  for (const std::string text : {"0", "-0.1", "nan", "inf", "1e999", "fast", "", "0.1x"}) {
    EXPECT_EQ(refusal({"--learning-rate", text}),
              "--learning-rate: expected a number above 0, but got '" + text + "'");
  }
}

TEST(TrainingFlags, RefusesWhatIsNoMomentum) {
  for (const std::string text : {"1", "-0.1", "nan", "x"}) {
    EXPECT_EQ(refusal({"--optimizer", "sgd", "--momentum", text}),
              "--momentum: expected a number from 0 to below 1, but got '" + text + "'");
  }
}

TEST(TrainingFlags, RefusesWhatIsNoSeed) {
  for (const std::string text : {"-1", "18446744073709551616", "x"}) {
    EXPECT_EQ(refusal({"--seed", text}),
              "--seed: expected a whole number from 0 to 18446744073709551615, but got '" + text + "'");
  }
}

}  // namespace
}  // namespace lockstep::apps
