#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Arguments = std::vector<std::string>;

CommandLine parse(const Arguments& arguments) {
  return parse_command_line(arguments, {"default", "mirrored", "one_device"});
}

TrainOptions options_of(const Arguments& arguments) {
  return parse(arguments).options;
}

/// The error message for the refused arguments.
std::string refusal(const Arguments& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

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

TEST(CommandLine, ReadsEveryStrategyFlag) {
  const auto options = options_of({"--strategy", "mirrored", "--devices", "gpu:0,cpu:1", "--cross-device-ops",
                                   "hierarchical_copy", "--communication-timeout", "60", "--threads", "3"});
  EXPECT_EQ(options.strategy, "mirrored");
  EXPECT_THAT(options.devices, ElementsAre("gpu:0", "cpu:1"));
  EXPECT_EQ(options.cross_device_ops, "hierarchical_copy");
  EXPECT_EQ(options.communication_timeout_seconds, 60);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options_of({"--replicas", "4"}).replicas, 4);
  EXPECT_EQ(options_of({"--replicas-per-device", "4"}).replicas_per_device, 4);
}

TEST(CommandLine, ReadsEveryFlagOfWorkers) {
  const auto options =
      options_of({"--worker-hosts", "a:1,b:2", "--task-index", "1", "--communication", "exchange",
                  "--exchange-algorithm", "halving", "--gradient-compression", "bfloat16"});
  EXPECT_THAT(options.worker_hosts, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(options.task_index, 1);
  EXPECT_EQ(options.communication, "exchange");
  EXPECT_EQ(options.exchange_algorithm, "halving");
  EXPECT_EQ(options.gradient_compression, "bfloat16");
  EXPECT_TRUE(options_of({}).worker_hosts.empty());
  EXPECT_EQ(options_of({}).communication, "auto");
  EXPECT_EQ(options_of({}).exchange_algorithm, "auto");
  EXPECT_EQ(options_of({}).encrypt, "on");
  EXPECT_EQ(options_of({"--encrypt", "off"}).encrypt, "off");
  EXPECT_EQ(options_of({}).gradient_compression, "none");
}

TEST(CommandLine, RefusesOnlyOneOfTheFlagsThatNameAWorker) {
  EXPECT_EQ(refusal({"--worker-hosts", "a:1"}),
            "--worker-hosts a:1: expected --worker-hosts and --task-index together");
  EXPECT_EQ(refusal({"--task-index", "0"}),
            "--task-index 0: expected --worker-hosts and --task-index together");
  EXPECT_THAT(refusal({"--worker-hosts", "a:1", "--task-index", "-1"}), HasSubstr("--task-index"));
}

TEST(CommandLine, RefusesAnExchangeAlgorithmForOtherCommunication) {
  EXPECT_EQ(refusal({"--exchange-algorithm", "halving", "--communication", "ring"}),
            "--exchange-algorithm halving: expected it with --communication auto or exchange only");
  EXPECT_THAT(refusal({"--exchange-algorithm", "tree"}),
              AllOf(HasSubstr("--exchange-algorithm"), HasSubstr("recursive_doubling"), HasSubstr("tree")));
}

TEST(CommandLine, ReadsEveryDataFlag) {
  const auto options = options_of({"--data", "some/where", "--limit-train", "100", "--limit-test", "10",
                                   "--skip-bad", "--exif-orientation", "--image-cache", "device"});
  EXPECT_EQ(options.data, "some/where");
  EXPECT_EQ(options.limit_train, 100);
  EXPECT_EQ(options.limit_test, 10);
  EXPECT_TRUE(options.skip_bad);
  EXPECT_TRUE(options.exif_orientation);
  EXPECT_EQ(options.image_cache, ImageCache::kDevice);
}

TEST(CommandLine, ReadsEveryFlagOfParquetFiles) {
  const auto options =
      options_of({"--data", "s3://bucket/a@b/*.parquet", "--test-data", "tests.parquet", "--image-column",
                  "photo.bytes", "--label-column", "kind", "--parquet-memory", "2GiB"});
  EXPECT_EQ(options.data, "s3://bucket/a@b/*.parquet");
  EXPECT_EQ(options.test_data, "tests.parquet");
  EXPECT_EQ(options.image_column, "photo.bytes");
  EXPECT_EQ(options.label_column, "kind");
  EXPECT_EQ(options.parquet_memory, "2GiB");
  EXPECT_EQ(options_of({"--data", "a.parquet", "--test-share", "0.25"}).test_share, 0.25);
  EXPECT_THAT(refusal({"--data", "a.parquet", "--image-column", ""}), HasSubstr("the name of a column"));
  EXPECT_THAT(refusal({"--data", "a.parquet", "--parquet-memory", "much"}), HasSubstr("--parquet-memory"));
  for (const std::string flag : {"--data", "--test-data"}) {
    const std::string message = refusal({"--data", "a", flag, "s3://me:secret@bucket/images"});
    EXPECT_THAT(message, HasSubstr(flag + ": expected URIs without credentials"));
    EXPECT_THAT(message, Not(HasSubstr("secret@")));
  }
}

TEST(CommandLine, ReadsEveryModelFlag) {
  const auto options = options_of({"--model", "mobilenet_v2", "--image-size", "96", "--head",
                                   "flattened_dense", "--sync-batch-norm", "--refresh-batch-norm", "never"});
  EXPECT_EQ(options.model, ModelKind::kMobileNetV2);
  EXPECT_EQ(options.image_size, 96);
  EXPECT_EQ(options.head, HeadKind::kFlattenedDense);
  EXPECT_TRUE(options.sync_batch_norm);
  EXPECT_EQ(options.refresh_batch_norm, BatchNormRefresh::kNever);
}

TEST(CommandLine, TakesTheModelsOwnImageSize) {
  EXPECT_EQ(options_of({"--model", "mobilenet_v2"}).image_size, 64);
  EXPECT_EQ(options_of({"--model", "simple_cnn"}).image_size, 28);
}

TEST(CommandLine, ReadsEveryTrainingFlag) {
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

TEST(CommandLine, ReadsEveryPrecision) {
  for (const auto precision : {PrecisionKind::kFloat32, PrecisionKind::kIeee, PrecisionKind::kFloat64,
                               PrecisionKind::kTf32, PrecisionKind::kBFloat16, PrecisionKind::kFloat16}) {
    EXPECT_EQ(options_of({"--precision", precision_name(precision)}).precision, precision);
  }
}

TEST(CommandLine, ReadsEverySchedule) {
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

TEST(CommandLine, ReadsEveryFlagAboutGradientsAndTheEnd) {
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

TEST(CommandLine, ReadsTheSchedulesOfPipelines) {
  EXPECT_EQ(options_of({}).pipeline_schedule, "1f1b");
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
    EXPECT_EQ(options_of({"--pipeline-schedule", name}).pipeline_schedule, name);
  const auto options = options_of({"--pipeline-schedule", "interleaved", "--stages-per-rank", "3"});
  EXPECT_EQ(options.stages_per_rank, 3);
  EXPECT_THAT(refusal({"--stages-per-rank", "3"}),
              HasSubstr("--stages-per-rank 3: expected it with --pipeline-schedule interleaved only"));
  EXPECT_THAT(refusal({"--pipeline-schedule", "2f2b"}), HasSubstr("but got '2f2b'"));
  EXPECT_EQ(options_of({}).pipeline_cut, "operations");
  EXPECT_EQ(options_of({"--pipeline-cut", "time"}).pipeline_cut, "time");
  EXPECT_THAT(refusal({"--pipeline-cut", "hand"}), HasSubstr("but got 'hand'"));
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

TEST(CommandLine, TakesRegisteredStrategiesByName) {
  EXPECT_EQ(parse_command_line({"--strategy", "mine"}, {"default", "mine"}).options.strategy, "mine");
}

TEST(CommandLine, KeepsEmptyDevicesForTheirReaderToRefuse) {
  EXPECT_THAT(options_of({"--devices", ""}).devices, ElementsAre(""));
  EXPECT_THAT(options_of({"--devices", "cpu:0,"}).devices, ElementsAre("cpu:0", ""));
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

TEST(CommandLine, RefusesBothBatchSizes) {
  EXPECT_EQ(
      refusal({"--global-batch-size", "64", "--per-replica-batch-size", "32"}),
      "--global-batch-size 64: expected one of --global-batch-size and --per-replica-batch-size, but got "
      "both");
}

TEST(CommandLine, RefusesDevicesBesideReplicas) {
  EXPECT_THAT(refusal({"--devices", "cpu:0", "--replicas", "2"}),
              HasSubstr("expected one of --devices and --replicas, but got both"));
  EXPECT_THAT(refusal({"--replica-weights", ""}),
              HasSubstr("--replica-weights: expected measured, or positive numbers joined by commas"));
  EXPECT_THAT(refusal({"--replicas-per-device", "2", "--replicas", "2"}),
              HasSubstr("expected one of --replicas-per-device and --replicas, but got both"));
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

TEST(CommandLine, AveragesTheWeightsInOneOfTwoWays) {
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

TEST(CommandLine, RefusesAWarmUpThatIsLongerThanTheTraining) {
  EXPECT_EQ(refusal({"--epochs", "2", "--warmup-epochs", "2.5"}),
            "--warmup-epochs 2.5: expected at most the 2 of --epochs");
  EXPECT_EQ(options_of({"--epochs", "2", "--warmup-epochs", "2"}).warmup_epochs, 2);
  for (const std::string text : {"-1", "nan", "inf", "x"}) {
    EXPECT_EQ(refusal({"--warmup-epochs", text}),
              "--warmup-epochs: expected a number of 0 or more, but got '" + text + "'");
  }
}

TEST(CommandLine, RefusesWhatIsNoNormAndNoFactor) {
  for (const std::string text : {"0", "-1", "nan", "inf", "x"}) {
    EXPECT_EQ(refusal({"--clip-norm", text}),
              "--clip-norm: expected a number above 0, but got '" + text + "'");
  }
  for (const std::string text : {"0", "1", "-1", "nan", "x"}) {
    EXPECT_EQ(refusal({"--learning-rate-schedule", "step", "--schedule-factor", text}),
              "--schedule-factor: expected a number above 0 and below 1, but got '" + text + "'");
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

TEST(CommandLine, RefusesImageSizesThatTheModelCannotTake) {
  EXPECT_EQ(refusal({"--image-size", "3"}),
            "--image-size: expected a whole number from 4 to 2048, but got '3'");
  for (const std::string head : {"global_average", "flattened_dense"}) {
    EXPECT_EQ(refusal({"--model", "mobilenet_v2", "--head", head, "--image-size", "32"}),
              "--image-size: expected a whole number from 33 to 2048, but got '32'");
    EXPECT_EQ(options_of({"--model", "mobilenet_v2", "--head", head, "--image-size", "33"}).image_size, 33);
  }
}

/// Flags that take a whole number of 1 or more.
class CountFlag : public ::testing::TestWithParam<std::string> {};

TEST_P(CountFlag, RefusesWhatIsNoCount) {
  for (const std::string text : {"0", "-1", "1.5", "ten", "", "5x", " 5", "0x10", "99999999999999999999"}) {
    Arguments arguments{GetParam(), text};
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

TEST(CommandLine, RefusesEpochsAndStepsOfWhichThereWouldBeTooManyToCount) {
  for (const std::string flag : {"--epochs", "--steps-per-epoch"}) {
    EXPECT_EQ(refusal({flag, "1000000001"}),
              flag + ": expected a whole number from 1 to 1000000000, but got '1000000001'");
  }
  const auto most = options_of({"--epochs", "1000000000", "--steps-per-epoch", "1000000000"});
  EXPECT_EQ(make_plan(most, 1, 60000).num_steps, 1'000'000'000'000'000'000);
}

TEST(CommandLine, RefusesWhatIsNoLearningRate) {
  for (const std::string text : {"0", "-0.1", "nan", "inf", "1e999", "fast", "", "0.1x"}) {
    EXPECT_EQ(refusal({"--learning-rate", text}),
              "--learning-rate: expected a number above 0, but got '" + text + "'");
  }
}

TEST(CommandLine, RefusesWhatIsNoMomentum) {
  for (const std::string text : {"1", "-0.1", "nan", "x"}) {
    EXPECT_EQ(refusal({"--optimizer", "sgd", "--momentum", text}),
              "--momentum: expected a number from 0 to below 1, but got '" + text + "'");
  }
}

TEST(CommandLine, RefusesWhatIsNoSeed) {
  for (const std::string text : {"-1", "18446744073709551616", "x"}) {
    EXPECT_EQ(refusal({"--seed", text}),
              "--seed: expected a whole number from 0 to 18446744073709551615, but got '" + text + "'");
  }
}

TEST(CommandLine, HelpListsEveryFlagWithItsDefault) {
  const std::string help = train_help_text({"default", "mine"});
  for (const std::string flag : {"--strategy",
                                 "--devices",
                                 "--replicas",
                                 "--replicas-per-device",
                                 "--cross-device-ops",
                                 "--communication-timeout",
                                 "--threads",
                                 "--worker-hosts",
                                 "--task-index",
                                 "--communication",
                                 "--exchange-algorithm",
                                 "--encrypt",
                                 "--gradient-compression",
                                 "--list-devices",
                                 "--data",
                                 "--test-data",
                                 "--test-share",
                                 "--image-column",
                                 "--label-column",
                                 "--parquet-memory",
                                 "--limit-train",
                                 "--limit-test",
                                 "--skip-bad",
                                 "--exif-orientation",
                                 "--image-cache",
                                 "--model",
                                 "--image-size",
                                 "--head",
                                 "--sync-batch-norm",
                                 "--refresh-batch-norm",
                                 "--epochs",
                                 "--steps-per-epoch",
                                 "--global-batch-size",
                                 "--per-replica-batch-size",
                                 "--precision",
                                 "--cuda-graph",
                                 "--no-cudnn-benchmark",
                                 "--optimizer",
                                 "--learning-rate",
                                 "--learning-rate-schedule",
                                 "--scale-learning-rate",
                                 "--base-batch-size",
                                 "--momentum",
                                 "--seed",
                                 "--run-dir",
                                 "--config",
                                 "--retryable-exit-code",
                                 "--quiet",
                                 "--init-weights",
                                 "--strict",
                                 "--clip-norm",
                                 "--accumulate-steps",
                                 "--pipeline-schedule",
                                 "--stages-per-rank",
                                 "--pipeline-cut",
                                 "--warmup-epochs",
                                 "--schedule-step-epochs",
                                 "--schedule-factor",
                                 "--early-stopping",
                                 "--profile",
                                 "--log-every",
                                 "--help",
                                 "--version"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  for (const std::string value :
       {"(default: auto)", "(default: simple_cnn)", "(default: 64)", "(default: 0.001)", "(default: 1800)",
        "(default: 32)", "(default: 5)", "(default: cosine)", "auto, default, mine", "Examples:"}) {
    EXPECT_THAT(help, HasSubstr(value));
  }
}

TEST(CommandLine, HelpNamesEveryExitCodeOfTheProgram) {
  const std::string help = train_help_text({});
  const std::string codes = help.substr(help.find("Exit codes: "));
  for (const std::string code :
       {" 0 done", " 1 any other error", " 2 usage", " 3 data", " 4 checkpoint", "\n5 replicas",
        " 6 loss not finite", "\n7 no memory, disk space, thread or device", " 130 and 143: stopped"}) {
    EXPECT_THAT(codes, HasSubstr(code));
  }
}

TEST(CommandLine, HelpFitsIntoATerminalOf100Columns) {
  std::istringstream help(train_help_text({"default", "mine"}, "/bin/train_images"));
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
