#include "lockstep/apps/inspect_data/inspect_data_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InspectDataOptions, AreReadFromTheirFlags) {
  const InspectDataOptions defaults = parse_inspect_data_arguments({"clicks"}).options;
  EXPECT_EQ(defaults.num_rows, 0);
  EXPECT_FALSE(defaults.is_json || defaults.skips_bad || defaults.is_quiet);
  const InspectDataOptions options =
      parse_inspect_data_arguments(
          {"a,b*", "--rows", "10", "--json", "--html", "x.html", "--skip-bad", "--threads=2", "--quiet"})
          .options;
  EXPECT_EQ(options.place, "a,b*");
  EXPECT_THAT(options.paths, ElementsAre("a", "b*"));
  EXPECT_EQ(options.num_rows, 10);
  EXPECT_EQ(options.html, "x.html");
  EXPECT_EQ(options.threads, 2);
  EXPECT_TRUE(options.is_json && options.skips_bad && options.is_quiet);
}

TEST(InspectDataOptions, NameTheWrongArgument) {
  const auto message = [](const std::vector<std::string>& arguments) {
    return lockstep::message_of<UsageError>([&] { parse_inspect_data_arguments(arguments); });
  };
  EXPECT_THAT(message({}), HasSubstr("expected DATA"));
  EXPECT_THAT(message({"a,,b"}), HasSubstr("DATA: expected paths separated by commas, but got 'a,,b'"));
  EXPECT_THAT(message({"a", "--rows", "some"}), HasSubstr("--rows: expected"));
  EXPECT_THAT(message({"a", "--html", "a.parquet"}),
              HasSubstr("--html: expected a file whose name ends in .html, but got 'a.parquet'"));
}

TEST(InspectDataOptions, AreListedInLinesThatFitATerminal) {
  std::istringstream lines(inspect_data_help_text());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
