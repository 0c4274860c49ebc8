#include "lockstep/apps/train_images/options/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

ResolvedRun two_replicas() {
  ResolvedRun run{.data = "digits",
                  .num_train = 6000,
                  .num_test = 1000,
                  .num_classes = 10,
                  .channels = 1,
                  .strategy = "mirrored: asked for by name",
                  .replicas = "MirroredStrategy with 2 replicas",
                  .num_replicas = 2,
                  .threads = 1,
                  .num_parameters = 693962};
  run.plan = make_plan(run.options, run.num_replicas, run.num_train);
  return run;
}

TEST(Configuration, ShowsEveryValue) {
  EXPECT_EQ(configuration_text(two_replicas()),
            "data             digits\n"
            "images           6000 to train on, 1000 to test on\n"
            "model            simple_cnn, 693962 parameters, 28x28 grey, 10 classes\n"
            "strategy         mirrored: asked for by name\n"
            "replicas         MirroredStrategy with 2 replicas\n"
            "threads          1 in each replica\n"
            "global batch     64, 32 a replica\n"
            "epochs           5 of 94 steps\n"
            "precision        float32\n"
            "optimizer        adam\n"
            "learning rate    0.001, falling to 0 along a cosine\n"
            "seed             1\n");
}

TEST(Configuration, ShowsBothLearningRatesWhereItIsScaled) {
  ResolvedRun run = two_replicas();
  run.options.scale_learning_rate = true;
  run.options.global_batch_size = 256;
  run.plan = make_plan(run.options, run.num_replicas, run.num_train);
  EXPECT_THAT(
      configuration_text(run),
      HasSubstr("learning rate    0.008, scaled from 0.001 at a batch of 32, falling to 0 along a cosine\n"));
}

TEST(Configuration, ShowsWhatIsNotAsUsual) {
  ResolvedRun run = two_replicas();
  run.options.optimizer = OptimizerKind::kSgd;
  run.options.accumulate_steps = 4;
  run.options.clip_norm = 1.5;
  run.options.schedule = ScheduleKind::kReduceOnPlateau;
  run.options.warmup_epochs = 0.5;
  run.options.early_stopping = 3;
  run.options.init_weights = "a.safetensors";
  run.options.run_dir = "runs/a";
  run.options.precision = PrecisionKind::kFloat64;
  run.options.pipeline_schedule = "zb-h1";
  run.plan.num_stages = 2;
  run.plan.micro_batches = 4;
  const std::string text = configuration_text(run);
  EXPECT_THAT(text, HasSubstr("pipeline         2 stages, zb-h1, 4 micro-batches\n"));
  EXPECT_THAT(text,
              HasSubstr("optimizer        sgd, momentum 0.9, each step in 4 pieces, gradients clipped to a "
                        "norm of 1.5\n"));
  EXPECT_THAT(text,
              HasSubstr("learning rate    0.001, times 0.1 after 2 epochs without a better validation loss, "
                        "after a warm-up of 0.5 epochs\n"));
  EXPECT_THAT(text, HasSubstr("early stopping   after 3 epochs without a better validation loss\n"));
  EXPECT_THAT(text, HasSubstr("weights          a.safetensors, where names and shapes fit\n"));
  EXPECT_THAT(text, HasSubstr("precision        float64\n"));
  EXPECT_THAT(text, HasSubstr("recorded in      runs/a\n"));
  run.options.strict = true;
  run.options.schedule = ScheduleKind::kStep;
  run.options.schedule_step_epochs = 1;
  EXPECT_THAT(configuration_text(run), HasSubstr("a.safetensors, every one of them\n"));
  EXPECT_THAT(configuration_text(run), HasSubstr("0.001, times 0.1 every 1 epoch, after"));
}

TEST(Configuration, SaysHowWeightsAreAveraged) {
  ResolvedRun run = two_replicas();
  EXPECT_THAT(configuration_text(run), ::testing::Not(HasSubstr("average")));
  run.options.ema = 0.999;
  EXPECT_THAT(configuration_text(run),
              HasSubstr("\nweights' average exponential moving average, decay 0.999\n"));
  run.options.ema = 0;
  run.options.swa_start = 4;
  EXPECT_THAT(configuration_text(run), HasSubstr("\nweights' average mean over the epochs from 4 on\n"));
  run.options.swa_learning_rate = 0.05;
  EXPECT_THAT(configuration_text(run), HasSubstr("from 4 on, learning rate 0.05 then\n"));
}

TEST(Configuration, SaysThatALearningRateStays) {
  ResolvedRun run = two_replicas();
  run.options.schedule = ScheduleKind::kConstant;
  EXPECT_THAT(configuration_text(run), HasSubstr("learning rate    0.001, constant\n"));
}

TEST(Configuration, SaysWhereAPrecisionHolds) {
  ResolvedRun run = two_replicas();
  const auto shown = [&run](PrecisionKind precision) {
    run.options.precision = precision;
    return configuration_text(run);
  };
  EXPECT_THAT(shown(PrecisionKind::kTf32),
              HasSubstr("precision        tf32 in products and convolutions, else float32\n"));
  EXPECT_THAT(shown(PrecisionKind::kBFloat16),
              HasSubstr("precision        bfloat16 by autocast, parameters in float32\n"));
  EXPECT_THAT(shown(PrecisionKind::kFloat16),
              HasSubstr("precision        float16 by autocast, parameters in float32, loss scaled\n"));
}

TEST(Configuration, SaysHowABatchThatDoesNotDivideIsCut) {
  ResolvedRun run = two_replicas();
  run.plan.global_batch_size = 63;
  EXPECT_THAT(configuration_text(run), HasSubstr("global batch     63, up to 32 a replica\n"));
  run.plan.global_batch_size = 1;
  EXPECT_THAT(configuration_text(run),
              HasSubstr("global batch     1, so that 1 of 2 replicas get no images\n"));
}

TEST(Configuration, ShowsACudaGraphWhereThereIsOne) {
  ResolvedRun run = two_replicas();
  EXPECT_THAT(configuration_text(run), Not(HasSubstr("CUDA graph")));
  run.options.cuda_graph = true;
  EXPECT_THAT(configuration_text(run),
              HasSubstr("CUDA graph       of each step, replayed after a few calls\n"));
}

TEST(Configuration, AdvisesASmallerBatchIfFewImagesMakeFewSteps) {
  const auto text_of = [](int64_t num_train, int64_t batch, int num_replicas, int64_t steps_per_epoch = 0) {
    ResolvedRun run = two_replicas();
    run.num_train = num_train;
    run.num_replicas = num_replicas;
    run.options.global_batch_size = batch;
    run.options.steps_per_epoch = steps_per_epoch;
    run.plan = make_plan(run.options, num_replicas, num_train);
    return configuration_text(run);
  };
  EXPECT_THAT(
      text_of(1000, 64, 1),
      HasSubstr("epochs           5 of 16 steps\n"
                "                 few steps for so few images: --global-batch-size 16 makes 63 of them, "
                "and usually learns more\n"));
  EXPECT_THAT(text_of(1000, 64, 4), HasSubstr("--global-batch-size 32 makes 32 of them"));
  EXPECT_THAT(text_of(30, 64, 1), HasSubstr("--global-batch-size 8 makes 4 of them"));
  EXPECT_THAT(text_of(1000, 16, 1), Not(HasSubstr("few steps")));
  EXPECT_THAT(text_of(1000, 64, 8), Not(HasSubstr("few steps"))) << "no replica is to have fewer than 8";
  EXPECT_THAT(text_of(60000, 64, 1, 16), Not(HasSubstr("few steps"))) << "they were asked for";
}

TEST(Configuration, SaysWhenBatchNormIsRefreshed) {
  ResolvedRun run = two_replicas();
  EXPECT_THAT(configuration_text(run), Not(HasSubstr("batch norm")));
  run.options.model = ModelKind::kMobileNetV2;
  run.plan = make_plan(run.options, run.num_replicas, run.num_train);
  EXPECT_THAT(configuration_text(run),
              HasSubstr("\nbatch norm       statistics measured again before each test, as an epoch has few "
                        "steps\n"));
  run.options.refresh_batch_norm = BatchNormRefresh::kAlways;
  run.plan = make_plan(run.options, run.num_replicas, 60000);
  EXPECT_THAT(configuration_text(run),
              HasSubstr("\nbatch norm       statistics measured again before each test\n"));
}

TEST(Configuration, ShowsWhatBelongsToOneModelOrOptimizerOnly) {
  ResolvedRun run = two_replicas();
  EXPECT_THAT(configuration_text(run), Not(HasSubstr("momentum")));
  run.options.model = ModelKind::kMobileNetV2;
  run.options.optimizer = OptimizerKind::kSgd;
  EXPECT_THAT(configuration_text(run), HasSubstr("mobilenet_v2, head global_average, 693962 parameters"));
  EXPECT_THAT(configuration_text(run), HasSubstr("sgd, momentum 0.9\n"));
  run.options.sync_batch_norm = true;
  EXPECT_THAT(configuration_text(run),
              HasSubstr("head global_average, batch normalisation over all replicas, 693962 parameters"));
}

TEST(Configuration, ListsTheFirstSkippedImages) {
  ResolvedRun run = two_replicas();
  run.skipped = {"a.png: damaged PNG"};
  EXPECT_THAT(configuration_text(run), HasSubstr("to test on\n"
                                                 "skipped          1 damaged image\n"
                                                 "                 a.png: damaged PNG\n"
                                                 "model "));
  run.skipped = {"1.png: a", "2.png: b", "3.png: c", "4.png: d", "5.png: e", "6.png: f", "7.png: g"};
  run.options.run_dir = "runs/a";
  EXPECT_THAT(configuration_text(run),
              HasSubstr("skipped          7 damaged images\n"
                        "                 1.png: a\n"
                        "                 2.png: b\n"
                        "                 3.png: c\n"
                        "                 4.png: d\n"
                        "                 5.png: e\n"
                        "                 and 2 more\n"
                        "                 all are listed in runs/a/skipped_images.txt\n"
                        "model "));
}

}  // namespace
}  // namespace lockstep::apps
