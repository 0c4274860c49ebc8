#include "lockstep/apps/convert_data/convert_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConvertOptions options_of(const std::vector<std::string>& arguments) {
  return parse_convert_arguments(arguments).options;
}

TEST(ConvertOptions, HaveTheDefaultsThatTheHelpNames) {
  const ConvertOptions options = options_of({"logs", "clicks"});
  EXPECT_THAT(options.in, ElementsAre("logs"));
  EXPECT_EQ(options.out, "clicks");
  EXPECT_EQ(options.rows_per_file, 0);
  EXPECT_EQ(options.rows_per_group, 0);
  EXPECT_EQ(options.compression, "zstd");
  EXPECT_FALSE(options.shuffle_seed || options.overwrites || options.skips_bad || options.is_quiet);
  EXPECT_TRUE(options.flags_of_parquet.empty());
}

TEST(ConvertOptions, AreReadFromTheirFlags) {
  const ConvertOptions options =
      options_of({"a,b*", "out", "--rows-per-file", "10", "--rows-per-group=5", "--compression", "snappy",
                  "--shuffle-seed", "7", "--skip-bad", "--overwrite", "--quiet", "--threads", "3"});
  EXPECT_THAT(options.in, ElementsAre("a", "b*"));
  EXPECT_EQ(options.rows_per_file, 10);
  EXPECT_EQ(options.rows_per_group, 5);
  EXPECT_EQ(options.compression, "snappy");
  EXPECT_EQ(options.shuffle_seed, 7U);
  EXPECT_EQ(options.threads, 3);
  EXPECT_TRUE(options.skips_bad && options.overwrites && options.is_quiet);
  EXPECT_THAT(options.flags_of_parquet,
              ElementsAre("--rows-per-file", "--rows-per-group", "--compression", "--shuffle-seed"));
}

TEST(ConvertOptions, TakeAFileWithACommaInItsNameAsOne) {
  const TemporaryFolder folder;
  EXPECT_THAT(places_of(folder.file("a,b")), ElementsAre(folder.file("a"), "b"));
  lockstep::testing::write_text(folder.file("a,b"), "");
  EXPECT_THAT(places_of(folder.file("a,b")), ElementsAre(folder.file("a,b")));
}

TEST(ConvertOptions, NameTheWrongArgument) {
  const auto message = [](const std::vector<std::string>& arguments) {
    return message_of<UsageError>([&] { parse_convert_arguments(arguments); });
  };
  EXPECT_THAT(message({}), HasSubstr("expected IN"));
  EXPECT_THAT(message({"a"}), HasSubstr("expected OUT"));
  EXPECT_THAT(message({"a,", "b"}), HasSubstr("IN: expected paths separated by commas, but got 'a,'"));
  EXPECT_THAT(message({"a", "b", "--compression", "zst"}), HasSubstr("--compression: expected"));
  EXPECT_THAT(message({"a", "b", "--compression", "zst"}), HasSubstr("zstd"));
  EXPECT_THAT(message({"a", "b", "--rows-per-file", "-1"}), HasSubstr("--rows-per-file: expected"));
  EXPECT_THAT(message({"a", "b", "--overwrit"}), HasSubstr("--overwrite"));
}

TEST(ConvertOptions, AreListedInLinesThatFitATerminal) {
  std::istringstream lines(convert_help_text());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
