#include "lockstep/apps/shared/command_line/resume_command.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

TEST(ResumeCommandTest, RepeatsTheCommandWithoutItsResume) {
  EXPECT_EQ(resume_command("bin/train_images", {"--epochs", "5", "--backup-dir", "b"}),
            "bin/train_images --epochs 5 --backup-dir b");
  EXPECT_EQ(resume_command("t", {"--resume", "never", "--backup-dir=b"}), "t --backup-dir=b");
  EXPECT_EQ(resume_command("t", {"--backup-dir", "b", "--resume=some/where"}), "t --backup-dir b");
}

TEST(ResumeCommandTest, QuotesForAShell) {
  EXPECT_EQ(resume_command("/a b/t", {"--save-every", "5 steps", "--data", "it's", ""}),
            "'/a b/t' --save-every '5 steps' --data 'it'\\''s' ''");
  EXPECT_EQ(resume_command("t", {"$(rm)", "a;b", "*"}), "t '$(rm)' 'a;b' '*'");
}

}  // namespace
}  // namespace lockstep::apps
