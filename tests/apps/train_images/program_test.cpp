// Messages and exit codes of the built program, apart from training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "lockstep/tests/apps/train_images/trainings.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Expects the exit code and one line on standard error, and nothing else.
void expect_refusal(const ProcessResult& result, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.error;
  EXPECT_THAT(result.error, StartsWith("train_images: error: "));
  EXPECT_EQ(result.error.find('\n'), result.error.size() - 1) << result.error;
  for (const auto& part : parts) EXPECT_THAT(result.error, HasSubstr(part));
}

TEST(TrainImagesProgram, PrintsItsHelp) {
  const auto result = train_images({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Usage:\n  train_images [flags]"), HasSubstr("--global-batch-size N"),
                    HasSubstr("auto, default, mirrored, multi_worker, one_device")));
  EXPECT_EQ(result.error, "");
}

TEST(TrainImagesProgram, ListsTheDevices) {
  const auto result = train_images({"--list-devices"}, {.variables = {{"CUDA_VISIBLE_DEVICES", "-1"}}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "cpu:0\n0 GPUs; logical CPUs cpu:0, cpu:1, ... exist in any number\n");
}

TEST(TrainImagesProgram, PrintsItsVersion) {
  const auto result = train_images({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("train_images [0-9.]+, LibTorch 2\\.[0-9.]+\n"));
}

TEST(TrainImagesProgram, KeepsItsPages) {
  if (!LOCKSTEP_TEST_JEMALLOC) GTEST_SKIP() << "built without jemalloc";
  const auto result = train_images({"--version"}, {.variables = {{"MALLOC_CONF", "stats_print:true"}}});
  EXPECT_THAT(result.error, AllOf(HasSubstr("opt.dirty_decay_ms: -1"), HasSubstr("opt.muzzy_decay_ms: -1")));
}

TEST(TrainImagesProgram, SuggestsTheFlagAndTheValueThatWereMeant) {
  expect_refusal(train_images({"--epoch", "3"}), 2, {"--epoch: ", "did you mean --epochs?"});
  expect_refusal(train_images({"--strategy", "mirrord"}), 2,
                 {"--strategy: ", "'mirrord'", "did you mean mirrored?"});
}

TEST(TrainImagesProgram, RefusesUnknownRepeatedAndEmptyDevices) {
  const ProcessOptions no_gpu{.variables = {{"CUDA_VISIBLE_DEVICES", "-1"}}};
  const std::string available = "available: cpu:N (any N)";
  expect_refusal(train_images({"--devices", "gpu:x"}, no_gpu), 2,
                 {"--devices gpu:x: ", "'gpu:x'", available});
  expect_refusal(train_images({"--devices", "GPU:99"}, no_gpu), 2,
                 {"'GPU:99'", "there is no GPU: ", available});
  // The message names what is missing, which depends on whether the build has CUDA.
  expect_refusal(
      train_images({"--strategy", "mirrored", "--devices", "gpu:0"}, no_gpu), 2,
#ifdef LOCKSTEP_WITH_CUDA
      {"--devices gpu:0: 'gpu:0': there is no GPU: CUDA_VISIBLE_DEVICES='-1' leaves none", available});
#else
      {"--devices gpu:0: 'gpu:0': there is no GPU: this build of Lockstep cannot use any (LOCKSTEP_CUDA=OFF)",
       available});
#endif
  expect_refusal(train_images({"--devices", "cpu:0,CPU:0"}, no_gpu), 2, {"cpu:0 is named twice", available});
  expect_refusal(train_images({"--devices", ""}, no_gpu), 2, {"--devices", "empty name", available});
  expect_refusal(train_images({"--devices", "cpu:0,"}, no_gpu), 2, {"empty name", available});
  expect_refusal(train_images({"--devices", "tpu:0"}, no_gpu), 2, {"'tpu'", available});
}

/// Returns the processor time of all programs that have ended.
std::chrono::microseconds time_of_programs() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto time_of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return time_of(usage.ru_utime) + time_of(usage.ru_stime);
}

TEST(TrainImagesProgram, SaysWithinTwoSecondsOfWorkThatThereIsNoGpu) {
  const ProcessOptions no_gpu{.variables = {{"CUDA_VISIBLE_DEVICES", "-1"}}};
  // The processor's time, and the least of several attempts, since the machine may be busy.
  auto least = std::chrono::microseconds::max();
  for (int attempt = 0; attempt < 5 && least >= std::chrono::seconds(2); ++attempt) {
    const auto before = time_of_programs();
    EXPECT_EQ(train_images({"--strategy", "mirrored", "--devices", "gpu:0"}, no_gpu).exit_code, 2);
    least = std::min(least, time_of_programs() - before);
  }
  EXPECT_GT(least, std::chrono::microseconds(0));
  EXPECT_LT(least, std::chrono::seconds(2));
}

TEST(TrainImagesProgram, RefusesBatchesOfNothingAndTwoBatchSizes) {
  expect_refusal(train_images({"--global-batch-size", "0"}), 2, {"--global-batch-size: ", "but got '0'"});
  expect_refusal(train_images({"--per-replica-batch-size", "0"}), 2,
                 {"--per-replica-batch-size: ", "but got '0'"});
  expect_refusal(train_images({"--global-batch-size", "8", "--per-replica-batch-size", "4"}), 2,
                 {"but got both"});
}

TEST(TrainImagesProgram, RefusesImagesTooSmallForTheModelBeforeItTrains) {
  expect_refusal(train_images(short_training({"--model", "mobilenet_v2", "--image-size", "32"})), 2,
                 {"--image-size: expected a whole number from 33 to 2048, but got '32'"});
}

TEST(TrainImagesProgram, NamesTheStepAtWhichTheLossStoppedBeingANumber) {
  const auto result = train_images(short_training({"--optimizer", "sgd", "--learning-rate", "1e30"}));
  expect_refusal(result, 6,
                 {"epoch 1, step ", "expected a finite loss", "replica 0 (", "(--learning-rate 1e+30)"});
}

TEST(TrainImagesProgram, UndoesStepsThatEndInNanWhereAskedTo) {
  const auto run = [](const std::string& action) {
    return train_images(
        short_training({"--strategy", "mirrored", "--replicas", "2", "--on-not-finite", action}),
        {.variables = {{"LOCKSTEP_FAULTS", "nan@replica1:step2"}}});
  };
  // If losses are only checked at the end of the epoch, the next step's loss is the first to show the NaN.
  expect_refusal(run("stop"), 6, {"epoch 1, step 3: expected a finite loss, but replica 1 (cpu:1) got NaN"});
  const auto rolled_back = run("roll_back");
  EXPECT_EQ(rolled_back.exit_code, 0) << rolled_back.error;
  EXPECT_THAT(rolled_back.error,
              AllOf(HasSubstr("train_images: [fit] expected finite losses, but in epoch 1, step 3"),
                    HasSubstr("the last 5 steps are undone")));
  const auto skipped = run("skip");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.error;
  EXPECT_THAT(skipped.error,
              AllOf(HasSubstr("train_images: [fit] expected a finite state, but after epoch 1, step 2"),
                    HasSubstr("the step is undone")));
  EXPECT_THAT(skipped.out, ::testing::Not(HasSubstr("nan")));
  expect_refusal(run("ignore"), 2, {"--on-not-finite", "stop, skip, roll_back", "'ignore'"});
}

TEST(TrainImagesProgram, EndsWithOneLineWhereMemoryDoesNotSuffice) {
  if (kHasSanitizer) GTEST_SKIP() << "a sanitizer reserves more than any limit";
  const auto result =
      train_images(short_training({"--model", "mobilenet_v2", "--image-size", "1024", "--replicas", "2",
                                   "--global-batch-size", "64", "--plan", "off"}),
                   {.memory_limit = uint64_t{4} << 30});
  expect_refusal(result, 7, {"out of memory"});
}

TEST(TrainImagesProgram, EndsWithTheRetryableExitCodeIfAnotherStartMayHelp) {
  const std::vector<std::string> retryable{"--retryable-exit-code", "200"};
  auto large = short_training(
      {"--limit-train", "64", "--model", "mobilenet_v2", "--image-size", "1024", "--plan", "off"});
  large.insert(large.end(), retryable.begin(), retryable.end());
  if (!kHasSanitizer)  // which reserves more than any limit
    expect_refusal(train_images(large, {.memory_limit = uint64_t{4} << 30}), 200, {"out of memory"});
  expect_refusal(train_images({"--data", "/no/such/folder", "--retryable-exit-code", "200"}), 3,
                 {"no such file or folder"});
  expect_refusal(train_images({"--retryable-exit-code", "5"}), 2, {"--retryable-exit-code: ", "128 to 255"});
}

TEST(TrainImagesProgram, TakesTheFolderThatTheVariableNames) {
  const TemporaryFolder folder;
  expect_refusal(train_images({}, {.variables = {{"LOCKSTEP_MNIST_DIR", folder.path()}}}), 3,
                 {"LOCKSTEP_MNIST_DIR=" + folder.path(), "expected MNIST's IDX files"});
  expect_refusal(train_images({}, {.variables = {{"LOCKSTEP_MNIST_DIR", "/no/such/folder"}}}), 3,
                 {"LOCKSTEP_MNIST_DIR=/no/such/folder", "no such file or folder"});
}

TEST(TrainImagesProgram, DrawsDigitsWhereThereIsNoDataAndSaysHowToGetTheRealOnes) {
  const TemporaryFolder folder;
  const auto result =
      train_images({"--limit-train", "10", "--limit-test", "10", "--epochs", "1"}, {.folder = folder.path()});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(
      result.out,
      AllOf(StartsWith("data             generated digits: LOCKSTEP_MNIST_DIR is not set"),
            HasSubstr("put its four files into data/mnist"), HasSubstr("train-images-idx3-ubyte.gz")));
}

}  // namespace
}  // namespace lockstep::testing
