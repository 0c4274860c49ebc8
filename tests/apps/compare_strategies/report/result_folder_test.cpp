#include "lockstep/apps/compare_strategies/report/result_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string folder_refusal(const std::string& out) {
  try {
    make_result_folder(out);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(ResultFolder, IsTheOneThatIsNamedWhereItIsNewOrEmpty) {
  const WorkFolder work;
  const std::string path = work.path() + "/a/b";
  EXPECT_EQ(make_result_folder(path), path);
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(make_result_folder(path), path) << "it is empty";
}

TEST(ResultFolder, OverwritesNothing) {
  const WorkFolder work;
  std::ofstream(work.path() + "/file") << "kept";
  EXPECT_EQ(folder_refusal(work.path()),
            "--out " + work.path() + ": expected a new or empty folder, but there are files in it");
  EXPECT_THAT(folder_refusal(work.path() + "/file"), HasSubstr("expected a new or empty folder, but "));
  EXPECT_THAT(folder_refusal(work.path() + "/file/below"), HasSubstr("it cannot be made: Not a directory"));
  EXPECT_EQ(fs::file_size(work.path() + "/file"), 4U);
}

TEST(ResultFolder, IsANewOneEachTimeWhereNoneIsNamed) {
  const WorkFolder work;
  const fs::path before = fs::current_path();
  fs::current_path(work.path());
  const std::string first = make_result_folder("");
  const std::string second = make_result_folder("");
  EXPECT_THAT(first, MatchesRegex("comparisons/[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}"));
  EXPECT_NE(first, second);
  EXPECT_TRUE(fs::is_directory(first) && fs::is_directory(second));
  fs::current_path(before);
}

TEST(WorkFolder, GoesWithAllThatIsInIt) {
  std::string path;
  {
    const WorkFolder work;
    path = work.path();
    std::ofstream(path + "/file") << "x";
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace lockstep::apps
