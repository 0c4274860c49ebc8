#include "lockstep/apps/shared/run_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

TEST(RecordTitle, NamesProgramModelAndStrategy) {
  EXPECT_EQ(record_title("train_images", "simple_cnn", "MirroredStrategy with 2 replicas, cpu:0 and cpu:1"),
            "train_images: simple_cnn by MirroredStrategy with 2 replicas");
  EXPECT_EQ(record_title("train_ctr", "dlrm", "DefaultStrategy"), "train_ctr: dlrm by DefaultStrategy");
}

class RecordFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(run_ + "/checkpoints"); }

  const testing::TemporaryFolder folder_;
  const std::string run_ = folder_.file("run");  // in use
};

TEST_F(RecordFolderTest, ANewRunIsNotMovedElsewhere) {
  EXPECT_EQ(record_folder({.run_dir = run_}), run_) << "the run directory refuses it then";
  EXPECT_EQ(record_folder({.run_dir = run_, .backup_dir = folder_.file("backup"), .resume = "never"}), run_);
  EXPECT_EQ(record_folder({.run_dir = folder_.file("new"), .restart_count = 1}), folder_.file("new"));
}

TEST_F(RecordFolderTest, AJobThatIsStartedAgainRecordsBesideBeforeItsFirstCheckpointToo) {
  EXPECT_EQ(record_folder({.run_dir = run_, .restart_count = 1}), run_ + "-2");
  EXPECT_EQ(record_folder({.run_dir = run_, .backup_dir = folder_.file("backup")}), run_ + "-2");
  std::filesystem::create_directories(run_ + "-2/checkpoints");
  EXPECT_EQ(record_folder({.run_dir = run_, .restart_count = 2}), run_ + "-3");
}

TEST(HostsOfWorkers, NamesAHostOfSeveralReplicasOnce) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  MirroredStrategy strategy(std::vector<std::string>{"cpu:0", "cpu:1", "cpu:2"});
  EXPECT_THAT(hosts_of_workers(strategy), ::testing::ElementsAre(std::string(host.data())));
}

}  // namespace
}  // namespace lockstep::apps
