#include "lockstep/training/checkpoints/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/loop_by_hand.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(BackupTest, ALoopByHandGoesOnBitByBit) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(2));
  const auto whole = LoopByHand(strategy, every_step(folder.file("whole"))).run_to(8);
  for (int64_t step = 1; step < 8; ++step) {
    const auto options = every_step(folder.file("part" + std::to_string(step)));
    { LoopByHand(strategy, options).run_to(step); }
    LoopByHand resumed(strategy, options);
    ASSERT_TRUE(resumed.restored);
    EXPECT_EQ(resumed.progress.step, step);
    EXPECT_TRUE(bit_equal(resumed.run_to(8), whole)) << step;
  }
}

TEST(BackupTest, AFinishedTrainingStartedAgainRepeatsNoStep) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(2));
  auto options = every_step(folder.file("backup"));
  options.save_every = SaveInterval::steps(100);  // none is due before the end
  std::vector<torch::Tensor> trained;
  {
    LoopByHand loop(strategy, options);
    trained = loop.run_to(5);
    ++loop.progress.epoch;
    loop.backup.finish(loop.progress);
  }
  const auto checkpoints = list_checkpoints(options.folder);
  ASSERT_EQ(checkpoints.size(), 1U);
  const auto written_at = std::filesystem::last_write_time(checkpoints.front() + "/state.pt");

  LoopByHand again(strategy, options);
  ASSERT_TRUE(again.restored);
  EXPECT_EQ(again.progress.step, 5);
  EXPECT_EQ(again.progress.epoch, 1);
  EXPECT_TRUE(bit_equal(again.run_to(5), trained));
  again.backup.finish(again.progress);
  EXPECT_EQ(list_checkpoints(options.folder), checkpoints);
  EXPECT_EQ(std::filesystem::last_write_time(checkpoints.front() + "/state.pt"), written_at);

  again.run_to(7);
  again.backup.finish(again.progress);
  EXPECT_THAT(list_checkpoints(options.folder).front(), HasSubstr("000007"));
}

TEST(BackupTest, AFinishedTrainingThatIsToLeaveNothingSavesNothing) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  auto options = every_step(folder.file("backup"));
  options.save_every = SaveInterval::steps(100);
  options.delete_on_success = true;
  LoopByHand loop(strategy, options);
  loop.run_to(2);
  const testing::FileSizeLimit limit(1000);  // a save would throw
  loop.backup.finish(loop.progress);
  EXPECT_TRUE(list_checkpoints(options.folder).empty());
}

TEST(BackupTest, PassesOverDamagedCheckpointsAndNamesThem) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  std::vector<std::string> messages;
  auto options = every_step(folder.file("backup"), &messages);
  options.keep_last = 3;
  const auto whole = LoopByHand(strategy, options).run_to(6);
  damage(list_checkpoints(options.folder)[0] + "/state.pt");
  damage(list_checkpoints(options.folder)[1] + "/manifest.json");
  LoopByHand resumed(strategy, options);
  EXPECT_EQ(resumed.progress.step, 4);
  EXPECT_THAT(messages,
              ElementsAre(AllOf(HasSubstr("passed over a damaged checkpoint"), HasSubstr("000006/state.pt"),
                                HasSubstr("expected bytes with their checksum")),
                          HasSubstr("000005/manifest.json"), HasSubstr("resumes after step 4 from "),
                          HasSubstr("set aside 2 later checkpoints")));
  EXPECT_TRUE(bit_equal(resumed.run_to(6), whole));
}

TEST(BackupTest, WithoutAWholeCheckpointItDoesNotBeginAnew) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  const auto options = every_step(folder.file("backup"));
  { LoopByHand(strategy, options).run_to(3); }
  for (const auto& path : list_checkpoints(options.folder)) damage(path + "/state.pt");
  EXPECT_THAT(error_of<CheckpointError>([&] { LoopByHand(strategy, options); }),
              AllOf(HasSubstr(options.folder), HasSubstr("all are damaged"), HasSubstr("000003/state.pt")));
}

TEST(BackupTest, GoesOnFromTheCheckpointThatIsAskedFor) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  auto options = every_step(folder.file("backup"));
  options.keep_last = 5;
  { LoopByHand(strategy, options).run_to(4); }
  auto other = every_step(folder.file("other"));
  other.resume = options.folder + "/checkpoint-000000000002";
  EXPECT_EQ(LoopByHand(strategy, other).progress.step, 2);
  other.resume = options.folder;
  EXPECT_EQ(LoopByHand(strategy, other).progress.step, 4);
  other.resume = folder.file("none");
  EXPECT_THAT(error_of<CheckpointError>([&] { LoopByHand(strategy, other); }),
              HasSubstr(folder.file("none")));
  damage(options.folder + "/checkpoint-000000000002/state.pt");
  other.resume = options.folder + "/checkpoint-000000000002";
  EXPECT_THAT(error_of<CheckpointError>([&] { LoopByHand(strategy, other); }), HasSubstr("000002/state.pt"));
}

TEST(BackupTest, NeverLeavesNoCheckpointsOfAnotherTrainingBehind) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  auto options = every_step(folder.file("backup"));
  options.resume = "never";
  { LoopByHand(strategy, options).run_to(2); }
  EXPECT_THAT(error_of<CheckpointError>([&] { LoopByHand(strategy, options); }),
              HasSubstr("checkpoint-000000000002 is there"));
}

TEST(BackupTest, AFullDiskIsAMessageAndTheTrainingGoesOn) {
  const TemporaryFolder folder;
  for (const bool asynchronous : {false, true}) {
    MirroredStrategy strategy(cpu_devices(1));
    std::vector<std::string> messages;
    auto options = every_step(folder.file(asynchronous ? "background" : "foreground"), &messages);
    options.asynchronous = asynchronous;
    LoopByHand loop(strategy, options);
    loop.run_to(1);
    loop.backup.finish();
    {
      const testing::FileSizeLimit limit(1000);
      loop.run_to(4);
      loop.backup.finish();
    }
    EXPECT_EQ(messages.size(), 3);
    for (const auto& line : messages)
      EXPECT_THAT(line, AllOf(HasSubstr("could not be saved"), HasSubstr("state.pt")));
    EXPECT_THAT(testing::names_in(options.folder), ElementsAre("checkpoint-000000000001", "lock"));
    loop.run_to(5);
    loop.backup.finish();
    EXPECT_EQ(list_checkpoints(options.folder).size(), 2);
    const testing::FileSizeLimit limit(1000);
    EXPECT_THAT(error_of<std::system_error>([&] { loop.backup.save_and_wait(loop.progress); }),
                HasSubstr("state.pt"));
  }
}

TEST(BackupTest, ASecondTrainingIsToldWhoseTheFolderIs) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  const auto options = every_step(folder.file("backup"));
  const Backup first(strategy, options);
  EXPECT_THAT(error_of<CheckpointError>([&] { Backup(strategy, options); }),
              HasSubstr("in use by process " + std::to_string(getpid())));
}

TEST(BackupTest, WorkersFailTogetherWhereNoCheckpointIsWhole) {
  const TemporaryFolder folder;
  const auto options = every_step(folder.file("backup"));
  {
    MirroredStrategy strategy(cpu_devices(2));
    LoopByHand(strategy, options).run_to(2);
  }
  for (const auto& path : list_checkpoints(options.folder)) damage(path + "/state.pt");
  const auto errors =
      run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) { LoopByHand(strategy, options); });
  for (const auto& error : errors) EXPECT_TRUE(is_a<CheckpointError>(error)) << text_of(error);
}

TEST(BackupTest, RefusesOptionsOutOfRange) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  EXPECT_THAT(error_of<InvalidArgument>([&] { Backup(strategy, {.folder = ""}); }), HasSubstr("a folder"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                Backup(strategy, {.folder = folder.file("a"), .save_every = {SaveUnit::kSteps, 0}});
              }),
              HasSubstr("every 1 or more"));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { Backup(strategy, {.folder = folder.file("a"), .keep_last = 0}); }),
      HasSubstr("1 or more"));
}

}  // namespace
}  // namespace lockstep
