// Trains with the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "lockstep/tests/apps/train_images/trainings.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Losses are printed with four decimals.
constexpr double kPrinted = 1.1e-4;

EpochNumbers only_epoch(const std::vector<std::string>& arguments) {
  const auto result = train_images(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  const auto epochs = epochs_of(result);
  EXPECT_EQ(epochs.size(), 1) << result.out;
  return epochs.empty() ? EpochNumbers{} : epochs[0];
}

TEST(TrainImages, LearnsGeneratedDigits) {
  const auto result = train_images({"--data", "generated", "--limit-train", "2000", "--limit-test", "500",
                                    "--epochs", "2", "--threads", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto epochs = epochs_of(result);
  ASSERT_EQ(epochs.size(), 2) << result.out;
  EXPECT_LT(epochs[1].loss, 0.5 * epochs[0].loss);
  EXPECT_GT(epochs[1].accuracy, epochs[0].accuracy);
  EXPECT_GT(epochs[1].test_accuracy, 0.9);
}

TEST(TrainImages, TrainsMobileNetV2) {
  const auto arguments =
      short_training({"--model", "mobilenet_v2", "--strategy", "mirrored", "--devices", "cpu:0,cpu:1",
                      "--head", "flattened_dense", "--image-size", "40", "--epochs", "2"});
  const auto result = train_images(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto epochs = epochs_of(result);
  ASSERT_EQ(epochs.size(), 2) << result.out;
  EXPECT_LT(epochs[1].loss, epochs[0].loss);
  EXPECT_THAT(result.out, AllOf(HasSubstr("2884874 parameters"), HasSubstr("40x40 RGB")));
}

// Twelve steps change the weights so much that the averages of training fit none of them: PyTorch's model
// tests at chance, too.
TEST(TrainImages, TestsAboveChanceFromTheFirstEpochsOfFewImagesOn) {
  const auto epochs_with = [](const std::string& refresh) {
    const auto result =
        train_images({"--data", "generated", "--limit-train", "384", "--limit-test", "500", "--model",
                      "mobilenet_v2", "--image-size", "33", "--epochs", "2", "--global-batch-size", "32",
                      "--threads", "1", "--refresh-batch-norm", refresh});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    auto epochs = epochs_of(result);
    EXPECT_EQ(epochs.size(), 2) << result.out;
    epochs.resize(2);
    return epochs;
  };
  const auto refreshed = epochs_with("auto");
  const auto averaged = epochs_with("never");
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_GT(refreshed[epoch].test_accuracy, 0.13);  // CPUs round differently: 0.19 on some
    EXPECT_LT(averaged[epoch].test_accuracy, 0.12);
    EXPECT_EQ(refreshed[epoch].loss, averaged[epoch].loss) << "the training is the same";
    EXPECT_EQ(refreshed[epoch].accuracy, averaged[epoch].accuracy);
  }
}

TEST(TrainImages, SyncBatchNormGivesOneReplicasLossOnSeveral) {
  const auto loss_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--data", "generated", "--limit-train", "24", "--limit-test", "7"};
    // Only the first step's loss: a fresh MobileNetV2 magnifies the rounding of later parameters.
    for (const char* argument :
         {"--epochs", "1", "--steps-per-epoch", "1", "--global-batch-size", "10", "--model", "mobilenet_v2",
          "--head", "flattened_dense", "--image-size", "64", "--strategy", "mirrored", "--threads", "1"})
      arguments.emplace_back(argument);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return only_epoch(arguments).loss;
  };
  const double one = loss_of({"--replicas", "1", "--sync-batch-norm"});
  EXPECT_NEAR(loss_of({"--replicas", "3", "--sync-batch-norm"}), one, 10 * kPrinted);
  // Each replica's own statistics differ from those of the whole batch.
  EXPECT_GT(std::abs(loss_of({"--replicas", "3"}) - one), 100 * kPrinted);
}

TEST(TrainImages, TrainsInEveryPrecisionOfACpu) {
  const auto exact = only_epoch(short_training({"--replicas", "2"}));
  for (const std::string precision : {"bfloat16", "float16"}) {
    const auto arguments = short_training({"--replicas", "2", "--precision", precision});
    const auto result = train_images(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, HasSubstr("precision        " + precision + " by autocast"));
    const auto epochs = epochs_of(result);
    ASSERT_EQ(epochs.size(), 1) << result.out;
    EXPECT_NE(epochs[0].loss, exact.loss) << precision;
    EXPECT_NEAR(epochs[0].loss, exact.loss, 0.1) << precision;
    // Equal seeds give equal numbers here too.
    EXPECT_EQ(only_epoch(arguments).loss, epochs[0].loss) << precision;
  }
}

TEST(TrainImages, RefusesTf32WithoutAGpu) {
  const auto result = train_images(short_training({"--devices", "cpu:0,cpu:1", "--precision", "tf32"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, HasSubstr("--precision tf32: expected GPUs only, which alone have TF32, but got "
                                      "cpu:0"));
}

TEST(TrainImages, PrintsTheSameNumbersForTheSameSeedOnly) {
  const auto first = only_epoch(short_training({"--seed", "7"}));
  const auto again = only_epoch(short_training({"--seed", "7"}));
  const auto other = only_epoch(short_training({"--seed", "8"}));
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_EQ(first.accuracy, again.accuracy);
  EXPECT_EQ(first.test_accuracy, again.test_accuracy);
  EXPECT_NE(first.loss, other.loss);
}

/// Batch sizes that the replicas divide, that they do not divide, and that are below their number.
class ReplicaParity : public ::testing::TestWithParam<std::string> {};

TEST_P(ReplicaParity, GivesOneReplicasLossForAnyNumberOfThem) {
  const auto train_with = [&](const std::string& replicas) {
    return only_epoch({"--data",
                       "generated",
                       "--limit-train",
                       "200",
                       "--limit-test",
                       "7",
                       "--steps-per-epoch",
                       "6",
                       "--epochs",
                       "1",
                       "--strategy",
                       "mirrored",
                       "--optimizer",
                       "sgd",
                       "--threads",
                       "1",
                       "--global-batch-size",
                       GetParam(),
                       "--replicas",
                       replicas});
  };
  const auto one = train_with("1");
  for (const std::string replicas : {"2", "3"}) {
    const auto several = train_with(replicas);
    EXPECT_NEAR(several.loss, one.loss, kPrinted) << replicas << " replicas";
    EXPECT_EQ(several.accuracy, one.accuracy) << replicas << " replicas";
    EXPECT_EQ(several.test_accuracy, one.test_accuracy) << replicas << " replicas";
  }
}

INSTANTIATE_TEST_SUITE_P(BatchSizes, ReplicaParity, ::testing::Values("60", "7", "1"));

TEST(TrainImages, CountsEveryTestImageOnce) {
  // Batches of three on two replicas, and a last batch of one, give uneven and empty shards.
  const auto epoch = only_epoch({"--data", "generated", "--limit-train", "64", "--limit-test", "7",
                                 "--epochs", "1", "--replicas", "2", "--global-batch-size", "3"});
  const double correct = epoch.test_accuracy * 7;
  EXPECT_NEAR(correct, std::round(correct), 7 * 1e-4);
}

TEST(TrainImages, GoesOnThroughTheImagesInTheNextShortEpoch) {
  const std::vector<std::string> common{"--data",       "generated", "--limit-train",       "128",
                                        "--limit-test", "10",        "--global-batch-size", "64",
                                        "--threads",    "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return epochs_of(train_images(more));
  };
  const auto whole = with({"--epochs", "1"});
  const auto halves = with({"--epochs", "2", "--steps-per-epoch", "1"});
  ASSERT_EQ(whole.size(), 1);
  ASSERT_EQ(halves.size(), 2);
  EXPECT_NEAR(whole[0].loss, (halves[0].loss + halves[1].loss) / 2, kPrinted);
}

TEST(TrainImages, BeginsTheImagesAnewWhereAnEpochHasMoreSteps) {
  const auto result = train_images({"--data", "generated", "--limit-train", "64", "--limit-test", "10",
                                    "--epochs", "1", "--steps-per-epoch", "12", "--threads", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  ASSERT_EQ(epochs_of(result).size(), 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("1 of 12 steps"));
}

// Two epochs of six steps lower the learning rate as one epoch of twelve does, so their mean losses agree.
TEST(TrainImages, LowersTheLearningRateOverTheStepsOfAllEpochs) {
  const auto steps = [](const std::string& epochs, const std::string& steps_per_epoch,
                        const std::string& schedule) {
    const auto result = train_images({"--data", "generated", "--limit-train", "640", "--limit-test", "10",
                                      "--epochs", epochs, "--steps-per-epoch", steps_per_epoch, "--threads",
                                      "1", "--learning-rate-schedule", schedule});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    return epochs_of(result);
  };
  const auto one = steps("1", "12", "cosine");
  const auto two = steps("2", "6", "cosine");
  ASSERT_EQ(one.size(), 1);
  ASSERT_EQ(two.size(), 2);
  EXPECT_NEAR(one[0].loss, (two[0].loss + two[1].loss) / 2, kPrinted);
  EXPECT_EQ(one[0].test_accuracy, two[1].test_accuracy);

  const auto constant = steps("2", "6", "constant");
  ASSERT_EQ(constant.size(), 2);
  EXPECT_GT(std::abs(constant[1].loss - two[1].loss), kPrinted);
}

TEST(TrainImages, PrintsWhatItResolvedTheFlagsTo) {
  const auto result =
      train_images(short_training({"--strategy", "mirrored", "--devices", "cpu:0,cpu:1",
                                   "--per-replica-batch-size", "128", "--scale-learning-rate"}));
  ASSERT_EQ(result.exit_code, 0) << result.error;
  for (const std::string line :
       {"images           320 to train on, 50 to test on\n", "strategy         mirrored: asked for by name\n",
        "MirroredStrategy with 2 replicas on cpu:0 cpu:1", "global batch     256, 128 a replica\n",
        "epochs           1 of 2 steps\n", "learning rate    0.008, scaled from 0.001 at a batch of 32, "}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST(TrainImages, WritesPlainLinesWhereThereIsNoTerminal) {
  const auto result = train_images(short_training());
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.out.find_first_of("\r\033"), std::string::npos);
}

TEST(TrainImages, DrawsABarOnATerminal) {
  const auto result = train_images(
      short_training({"--steps-per-epoch", "30"}),
      {.variables = {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"LC_ALL", "C.UTF-8"}}, .is_terminal = true});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.error, AllOf(HasSubstr("\repoch 1/1"), HasSubstr("%|\033[36m"), HasSubstr("/30 ["),
                                  HasSubstr(" images/s, loss ")));
  EXPECT_EQ(epochs_of(result).size(), 1);
}

TEST(TrainImages, DrawsTheBarWithoutColourWhereNoColorIsSet) {
  const auto result =
      train_images(short_training({"--steps-per-epoch", "30"}),
                   {.variables = {{"TERM", "xterm"}, {"NO_COLOR", "1"}}, .is_terminal = true});
  EXPECT_THAT(result.error, AllOf(HasSubstr("\repoch 1/1"), Not(HasSubstr("\033[36m"))));
}

TEST(TrainImages, FinishesItsStepAndEndsWithTheSignalsCode) {
  for (const auto& [signal, code, name] :
       {std::tuple{SIGINT, 130, "SIGINT"}, std::tuple{SIGTERM, 143, "SIGTERM"}}) {
    const auto result = train_images({"--data", "generated", "--limit-train", "64", "--limit-test", "10",
                                      "--epochs", "100000", "--steps-per-epoch", "1", "--threads", "1"},
                                     {.signal = signal, .signal_after = "\nepoch 2/"});
    EXPECT_EQ(result.exit_code, code);
    EXPECT_THAT(result.error, HasSubstr(std::string("stopped by ") + name + " in epoch "));
  }
}

TEST(TrainImages, ReachesTheAccuracyOfRealMnistInBFloat16) {
  const std::string folder = mnist_folder();
  if (folder.empty()) GTEST_SKIP() << "LOCKSTEP_MNIST_DIR names no folder with MNIST";
  std::vector<std::string> arguments{"--data",     folder, "--precision", "bfloat16",
                                     "--replicas", "2",    "--epochs",    "1"};
  // A whole epoch takes minutes under a sanitizer.
  if (kHasSanitizer) arguments.insert(arguments.end(), {"--limit-train", "3200", "--limit-test", "1000"});
  const auto result = train_images(arguments, {.timeout_seconds = 600});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto epochs = epochs_of(result);
  ASSERT_EQ(epochs.size(), 1) << result.out;
  EXPECT_GT(epochs[0].test_accuracy, kHasSanitizer ? 0.8 : 0.96);
}

TEST(TrainImages, ReachesTheAccuracyOfRealMnistFromItsFilesAndItsZip) {
  const std::string folder = mnist_folder();
  if (folder.empty()) GTEST_SKIP() << "LOCKSTEP_MNIST_DIR names no folder with MNIST";
  for (const std::string& data : {folder, folder + "/mnist.zip"}) {
    const auto epoch = only_epoch({"--data", data, "--limit-train", "3200", "--limit-test", "1000",
                                   "--epochs", "1", "--replicas", "2"});
    EXPECT_GT(epoch.test_accuracy, 0.8) << data;
  }
}

}  // namespace
}  // namespace lockstep::testing
