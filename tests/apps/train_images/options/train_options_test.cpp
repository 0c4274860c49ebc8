#include "lockstep/apps/train_images/options/train_options.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

TEST(TrainPlan, ScalesTheLearningRateOnlyWhenAskedTo) {
  TrainOptions options{.global_batch_size = 256};
  EXPECT_DOUBLE_EQ(make_plan(options, 2, 1000).learning_rate, 0.001);
  options.scale_learning_rate = true;
  EXPECT_DOUBLE_EQ(make_plan(options, 2, 1000).learning_rate, 0.008);
}

TEST(TrainPlan, MultipliesThePerReplicaBatchByTheReplicas) {
  TrainOptions options{.per_replica_batch_size = 64, .scale_learning_rate = true};
  const TrainPlan plan = make_plan(options, 4, 1000);
  EXPECT_EQ(plan.global_batch_size, 256);
  EXPECT_DOUBLE_EQ(plan.learning_rate, 0.008);
}

TEST(TrainPlan, TakesOnePassOverTheImagesForAnEpoch) {
  TrainOptions options{.global_batch_size = 64};
  EXPECT_EQ(make_plan(options, 1, 60000).steps_per_epoch, 938);
  EXPECT_EQ(make_plan(options, 1, 64).steps_per_epoch, 1);
  EXPECT_EQ(make_plan(options, 1, 10).steps_per_epoch, 1);
  options.steps_per_epoch = 7;
  EXPECT_EQ(make_plan(options, 1, 60000).steps_per_epoch, 7);
}

TEST(TrainPlan, RefreshesBatchNormIfEpochsHaveFewSteps) {
  TrainOptions options{.model = ModelKind::kMobileNetV2, .global_batch_size = 64};
  EXPECT_TRUE(make_plan(options, 1, 1000).refreshes_batch_norm);
  EXPECT_TRUE(make_plan(options, 1, 99 * 64).refreshes_batch_norm);
  EXPECT_FALSE(make_plan(options, 1, 100 * 64).refreshes_batch_norm);
  EXPECT_FALSE(make_plan(options, 1, 60000).refreshes_batch_norm);
  options.refresh_batch_norm = BatchNormRefresh::kNever;
  EXPECT_FALSE(make_plan(options, 1, 1000).refreshes_batch_norm);
  options.refresh_batch_norm = BatchNormRefresh::kAlways;
  EXPECT_TRUE(make_plan(options, 1, 60000).refreshes_batch_norm);
  options.model = ModelKind::kSimpleCnn;
  EXPECT_FALSE(make_plan(options, 1, 1000).refreshes_batch_norm);
}

TEST(TrainPlan, CountsTheStepsOfAllEpochs) {
  EXPECT_EQ(make_plan({.global_batch_size = 64, .epochs = 3}, 1, 60000).num_steps, 3 * 938);
  EXPECT_EQ(make_plan({.epochs = 3, .steps_per_epoch = 7}, 1, 60000).num_steps, 21);
}

}  // namespace
}  // namespace lockstep::apps
