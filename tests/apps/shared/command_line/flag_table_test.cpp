#include "lockstep/apps/shared/command_line/flag_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

FlagTable table_of_counting() {
  FlagTable table{.program = "count",
                  .summary = "Counts.",
                  .operands = {"DIR"},
                  .flags = {{"Which", "limit", "N", "At most so many", "10"},
                            {"How", "quiet", "", "Print the number only"},
                            {"Which", "all", "", "Hidden ones, too"}},
                  .after = "\nExamples:\n  count .\n"};
  for (auto& flag : common_flags()) table.flags.push_back(flag);
  return table;
}

TEST(FlagTable, SpellsFlagsAsTheyAreTyped) {
  EXPECT_THAT(flag_spellings(table_of_counting()),
              ElementsAre("--limit", "--quiet", "--all", "--help", "--version"));
}

TEST(FlagTable, FindsAFlagByItsLongName) {
  const auto table = table_of_counting();
  ASSERT_NE(find_flag(table, "limit"), nullptr);
  EXPECT_EQ(find_flag(table, "limit")->value, "N");
  EXPECT_EQ(find_flag(table, "help")->name, "h,help");
  EXPECT_EQ(find_flag(table, "h"), nullptr);
  EXPECT_EQ(find_flag(table, "none"), nullptr);
}

TEST(FlagTable, HelpNamesTheProgramItsOperandsFlagsDefaultsAndExamples) {
  const std::string help = help_text(table_of_counting());
  EXPECT_THAT(help, StartsWith("Counts.\n"));
  EXPECT_THAT(help, HasSubstr("Usage:\n  count DIR [flags]\n"));
  EXPECT_THAT(help, HasSubstr("--limit N  At most so many (default: 10)\n"));
  EXPECT_THAT(help, HasSubstr("-h, --help"));
  EXPECT_THAT(help, EndsWith("\nExamples:\n  count .\n"));
}

TEST(FlagTable, HelpOfAProgramCalledByItsPathSaysHowToPutItIntoPath) {
  const auto table = table_of_counting();
  const std::string by_name = help_text(table);
  EXPECT_EQ(help_text(table, "count"), by_name);
  EXPECT_EQ(help_text(table, "/no/such/folder/count"), by_name);
  const testing::TemporaryFolder folder;
  const std::string link = folder.path() + "/link";
  std::filesystem::create_directory(folder.path() + "/bin");
  std::filesystem::create_directory_symlink(folder.path() + "/bin", link);
  const std::string bin = std::filesystem::canonical(link).string();
  EXPECT_THAT(help_text(table, link + "/count"),
              EndsWith("\n  export PATH=\"" + bin + ":$PATH\"\n\nExamples:\n  count .\n"));
}

TEST(FlagTable, ListsNoFlagThatTheProgramGivesToItself) {
  auto table = table_of_counting();
  table.flags.push_back({"", "internal", "N", "For itself"});
  EXPECT_EQ(help_text(table), help_text(table_of_counting()));
  EXPECT_EQ(flag_spellings(table), flag_spellings(table_of_counting()));
  EXPECT_NE(find_flag(table, "internal"), nullptr);
}

TEST(FlagTable, HelpListsEachGroupOnceInTheOrderOfItsFirstFlag) {
  const std::string help = help_text(table_of_counting());
  const size_t which = help.find("Which options:");
  const size_t how = help.find("How options:");
  const size_t other = help.find("Other options:");
  EXPECT_LT(which, help.find("--all"));
  EXPECT_LT(help.find("--all"), how);
  EXPECT_LT(how, other);
  EXPECT_NE(other, std::string::npos);
  EXPECT_EQ(help.find("Which options:", which + 1), std::string::npos);
}

}  // namespace
}  // namespace lockstep::apps
