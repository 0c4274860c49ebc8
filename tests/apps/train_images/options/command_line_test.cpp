#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/apps/train_images/options/parsed_arguments.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CommandLine, TrainsWithTheDocumentedDefaults) {
  const CommandLine line = parse({});
  EXPECT_EQ(line.action, Action::kTrain);
  const TrainOptions& options = line.options;
  EXPECT_EQ(options.strategy, "auto");
  EXPECT_THAT(options.devices, IsEmpty());
  EXPECT_EQ(options.replicas, 0);
  EXPECT_EQ(options.cross_device_ops, "auto");
  EXPECT_EQ(options.communication_timeout_seconds, 1800);
  EXPECT_EQ(options.threads, 0);
  EXPECT_EQ(options.data, "auto");
  EXPECT_EQ(options.limit_train, 0);
  EXPECT_EQ(options.limit_test, 0);
  EXPECT_FALSE(options.skip_bad);
  EXPECT_FALSE(options.exif_orientation);
  EXPECT_EQ(options.image_cache, ImageCache::kHost);
  EXPECT_EQ(options.model, ModelKind::kSimpleCnn);
  EXPECT_EQ(options.head, HeadKind::kGlobalAverage);
  EXPECT_EQ(options.image_size, 28);
  EXPECT_FALSE(options.sync_batch_norm);
  EXPECT_EQ(options.global_batch_size, 64);
  EXPECT_EQ(options.per_replica_batch_size, 0);
  EXPECT_EQ(options.epochs, 5);
  EXPECT_EQ(options.steps_per_epoch, 0);
  EXPECT_EQ(options.precision, PrecisionKind::kFloat32);
  EXPECT_FALSE(options.cuda_graph);
  EXPECT_EQ(options.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(options.momentum, 0.9);
  EXPECT_EQ(options.learning_rate, 0.001);
  EXPECT_EQ(options.schedule, ScheduleKind::kCosine);
  EXPECT_FALSE(options.scale_learning_rate);
  EXPECT_EQ(options.base_batch_size, 32);
  EXPECT_EQ(options.seed, 1);
}

TEST(CommandLine, ReadsEveryFlagAboutTheRun) {
  const auto options = options_of({"--run-dir", "runs/a", "--log-every", "5", "--profile", "3", "--quiet",
                                   "--init-weights", "a.safetensors", "--strict"});
  EXPECT_EQ(options.run_dir, "runs/a");
  EXPECT_EQ(options.log_every, 5);
  EXPECT_EQ(options.profile, 3);
  EXPECT_TRUE(options.quiet);
  EXPECT_EQ(options.init_weights, "a.safetensors");
  EXPECT_TRUE(options.strict);
  EXPECT_EQ(options_of({}).run_dir, "");
  EXPECT_EQ(options_of({}).log_every, 10);
  EXPECT_EQ(options_of({}).profile, 0);
  EXPECT_FALSE(options_of({}).quiet);
  EXPECT_EQ(options_of({}).init_weights, "");
}

TEST(CommandLine, ReadsFlagsThatDoSomethingElse) {
  EXPECT_EQ(parse({"--help"}).action, Action::kHelp);
  EXPECT_EQ(parse({"-h"}).action, Action::kHelp);
  EXPECT_EQ(parse({"--version"}).action, Action::kVersion);
  EXPECT_EQ(parse({"--list-devices"}).action, Action::kListDevices);
}

TEST(CommandLine, TakesValuesAfterAnEqualsSignToo) {
  EXPECT_EQ(options_of({"--epochs=3"}).epochs, 3);
}

TEST(CommandLine, TakesAFlagThatIsSetToFalseAsNotGiven) {
  EXPECT_FALSE(options_of({"--skip-bad=false"}).skip_bad);
  EXPECT_TRUE(options_of({"--skip-bad=true"}).skip_bad);
  EXPECT_FALSE(options_of({"--scale-learning-rate=false"}).scale_learning_rate);
  EXPECT_EQ(parse({"--help=false"}).action, Action::kTrain);
  EXPECT_THROW(parse({"--skip-bad=perhaps"}), UsageError);
}

TEST(CommandLine, LetsTheLastOfRepeatedFlagsCount) {
  EXPECT_EQ(options_of({"--epochs", "3", "--epochs", "4"}).epochs, 4);
}

TEST(CommandLine, SuggestsTheFlagThatWasMeant) {
  EXPECT_EQ(refusal({"--epoch", "5"}),
            "--epoch: expected a flag of this program (did you mean --epochs?); --help lists them");
  EXPECT_EQ(refusal({"--epoch=5"}),
            "--epoch: expected a flag of this program (did you mean --epochs?); --help lists them");
  EXPECT_EQ(refusal({"--frobnicate"}), "--frobnicate: expected a flag of this program; --help lists them");
  EXPECT_THAT(refusal({"-x"}), HasSubstr("-x: expected a flag of this program"));
}

TEST(CommandLine, SuggestsTheValueThatWasMeant) {
  EXPECT_EQ(
      refusal({"--model", "mobilenet_v3"}),
      "--model: expected simple_cnn, mobilenet_v2, but got 'mobilenet_v3' (did you mean mobilenet_v2?)");
  EXPECT_EQ(
      refusal({"--strategy", "mirored"}),
      "--strategy: expected auto, default, mirrored, one_device, but got 'mirored' (did you mean mirrored?)");
  EXPECT_EQ(
      refusal({"--precision", "bfloat61"}),
      "--precision: expected float32, ieee, float64, tf32, bfloat16, float16, but got 'bfloat61' (did you "
      "mean bfloat16?)");
  EXPECT_EQ(refusal({"--optimizer", "rmsprop"}), "--optimizer: expected adam, adamw, sgd, but got 'rmsprop'");
  EXPECT_EQ(refusal({"--image-cache", "gpu"}), "--image-cache: expected host, device, but got 'gpu'");
  EXPECT_EQ(
      refusal({"--cross-device-ops", "ncl"}),
      "--cross-device-ops: expected auto, nccl, hierarchical_copy, reduction_to_one_device, but got 'ncl' "
      "(did you mean nccl?)");
  EXPECT_THAT(refusal({"--model", "mobilenet_v2", "--head", "flat"}),
              HasSubstr("but got 'flat' (did you mean flattened_dense?)"));
}

TEST(CommandLine, RefusesArgumentsWithoutAFlag) {
  EXPECT_EQ(refusal({"mnist"}), "'mnist': expected a flag; --help lists them");
}

TEST(CommandLine, RefusesAFlagWithoutItsValue) {
  EXPECT_EQ(refusal({"--epochs"}), "--epochs: expected a value, but got none");
  EXPECT_EQ(refusal({"--data", "--epochs", "3"}), "--data: expected a value, but got the flag --epochs");
  EXPECT_EQ(refusal({"--data", ""}), "--data: expected auto, generated or a path, but got ''");
}

TEST(CommandLine, RefusesFlagsThatWouldHaveNoEffect) {
  EXPECT_THAT(refusal({"--base-batch-size", "64"}), HasSubstr("expected --scale-learning-rate with it"));
  EXPECT_THAT(refusal({"--momentum", "0.9"}),
              HasSubstr("expected it with --optimizer sgd only, but got adam"));
  EXPECT_THAT(refusal({"--head", "global_average"}), HasSubstr("expected it with --model mobilenet_v2 only"));
  EXPECT_EQ(refusal({"--sync-batch-norm"}),
            "--sync-batch-norm: expected it with --model mobilenet_v2 only, but got --model simple_cnn");
  EXPECT_EQ(refusal({"--refresh-batch-norm", "always"}),
            "--refresh-batch-norm always: expected it with --model mobilenet_v2 only, but got --model "
            "simple_cnn");
}

TEST(CommandLine, RefusesFlagsWithoutTheOneThatTheyNeed) {
  EXPECT_EQ(refusal({"--strict"}), "--strict: expected --init-weights with it");
  EXPECT_EQ(refusal({"--profile", "3"}), "--profile 3: expected --run-dir with it");
  EXPECT_EQ(refusal({"--log-every", "3"}), "--log-every 3: expected --run-dir or --mlflow-dir with it");
  for (const std::string schedule : {"cosine", "constant"}) {
    EXPECT_EQ(refusal({"--learning-rate-schedule", schedule, "--schedule-factor", "0.5"}),
              "--schedule-factor 0.5: expected it with --learning-rate-schedule step or reduce_on_plateau "
              "only, but "
              "got " +
                  schedule);
    EXPECT_THAT(refusal({"--learning-rate-schedule", schedule, "--schedule-step-epochs", "5"}),
                HasSubstr("--schedule-step-epochs 5: expected it with"));
  }
}

TEST(CommandLine, RefusesPlacesWithoutAName) {
  EXPECT_EQ(refusal({"--run-dir", ""}), "--run-dir: expected a folder, but got ''");
  EXPECT_EQ(refusal({"--init-weights", ""}), "--init-weights: expected a file, but got ''");
}

TEST(CommandLine, RefusesAProfileTooLongToKeep) {
  EXPECT_EQ(refusal({"--run-dir", "a", "--profile", "1001"}),
            "--profile: expected a whole number from 1 to 1000, but got '1001'");
}

TEST(CommandLine, SaysWhichOptionsWereGiven) {
  const auto origins = parse({"--epochs", "3", "--skip-bad"}).origins;
  EXPECT_EQ(origins.size(), 2U);
  EXPECT_EQ(origins.at("epochs").kind, OriginKind::kFlag);
  EXPECT_EQ(origins.at("skip-bad").kind, OriginKind::kFlag);
}

/// Flags that take a whole number of 1 or more.
class CountFlag : public ::testing::TestWithParam<std::string> {};

TEST_P(CountFlag, RefusesWhatIsNoCount) {
  for (const std::string text : {"0", "-1", "1.5", "ten", "", "5x", " 5", "0x10", "99999999999999999999"}) {
    ArgumentList arguments{GetParam(), text};
    if (GetParam() == "--base-batch-size") arguments.push_back("--scale-learning-rate");
    if (GetParam() == "--schedule-step-epochs") arguments.push_back("--learning-rate-schedule=step");
    if (GetParam() == "--log-every" || GetParam() == "--profile") arguments.push_back("--run-dir=a");
    EXPECT_THAT(refusal(arguments), AllOf(HasSubstr(GetParam() + ": expected a whole number from"),
                                          HasSubstr("but got '" + text + "'")));
  }
}

INSTANTIATE_TEST_SUITE_P(CommandLine, CountFlag,
                         ::testing::Values("--replicas", "--replicas-per-device", "--communication-timeout",
                                           "--threads", "--limit-train", "--limit-test", "--image-size",
                                           "--global-batch-size", "--per-replica-batch-size", "--epochs",
                                           "--steps-per-epoch", "--base-batch-size", "--accumulate-steps",
                                           "--schedule-step-epochs", "--log-every", "--profile"),
                         [](const auto& info) {
                           std::string name = info.param.substr(2);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace lockstep::apps
