#include "lockstep/apps/shared/command_line/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

FlagTable table_of_copying() {
  return {.program = "copy",
          .summary = "Copies.",
          .operands = {"FROM", "TO"},
          .flags = {{"What", "format", "NAME", "Of the copy", "text"},
                    {"What", "parts", "N", "Pieces"},
                    {"What", "force", "", "Overwrite"},
                    {"Other", "h,help", "", "Help"}}};
}

FlagTable table_without_operands() {
  FlagTable table = table_of_copying();
  table.operands.clear();
  return table;
}

Arguments read(const std::vector<std::string>& arguments) {
  return parse_arguments(table_without_operands(), arguments);
}

template <typename Act>
std::string refusal_by(const Act& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

std::string refusal_of(const FlagTable& table, const std::vector<std::string>& arguments) {
  return refusal_by([&] { parse_arguments(table, arguments); });
}

TEST(Arguments, HoldsTheFlagsThatWereGivenOnly) {
  const Arguments given = read({"--parts", "3", "--force"});
  EXPECT_TRUE(given.has("parts"));
  EXPECT_EQ(given.text("parts"), "3");
  EXPECT_TRUE(given.is_on("force"));
  // A default only appears in the help; code that reads the flag has its own.
  EXPECT_FALSE(given.has("format"));
  EXPECT_EQ(given.text("format", "binary"), "binary");
  EXPECT_EQ(read({}).integer("parts", {}, 7), 7);
}

TEST(Arguments, TakesAShortNameAndAnEqualsSign) {
  EXPECT_TRUE(read({"-h"}).is_on("help"));
  EXPECT_EQ(read({"--parts=3"}).text("parts"), "3");
  EXPECT_EQ(read({"--format="}).text("format"), "");
}

TEST(Arguments, TellsAFlagThatIsOffFromOneThatIsNotGiven) {
  const Arguments given = read({"--force=false"});
  EXPECT_TRUE(given.has("force"));
  EXPECT_FALSE(given.is_on("force"));
  EXPECT_FALSE(read({}).is_on("force"));
}

TEST(Arguments, TakesWhatFollowsAFlagWithAValueAsItsValue) {
  EXPECT_EQ(read({"--parts", "-1"}).text("parts"), "-1");
  EXPECT_EQ(read({"--parts", "1", "--parts", "2"}).text("parts"), "2");
  EXPECT_EQ(refusal_of(table_without_operands(), {"--parts", "--force"}),
            "--parts: expected a value, but got the flag --force");
  EXPECT_EQ(refusal_of(table_without_operands(), {"--parts"}), "--parts: expected a value, but got none");
}

TEST(Arguments, TakesAFlagsNameAsAnotherFlagsValueOnlyWhereItHasNoDashes) {
  EXPECT_EQ(read({"--format", "parts"}).text("format"), "parts");
}

TEST(Arguments, SplitsListsAtCommas) {
  EXPECT_THAT(read({"--format", "a,b"}).list("format"), ElementsAre("a", "b"));
  EXPECT_THAT(read({"--format", "a,"}).list("format"), ElementsAre("a", ""));
  EXPECT_THAT(read({}).list("format"), IsEmpty());
}

TEST(Arguments, ReadsOneOfAFewNames) {
  const auto given = read({"--format", "binray"});
  EXPECT_EQ(refusal_by([&] {
              given.name("format", {"text", "binary"}, "text");
            }),
            "--format: expected text, binary, but got 'binray' (did you mean binary?)");
  EXPECT_EQ(refusal_by([&] {
              given.choice<int>("format", {{"text", 1}, {"binary", 2}}, 1);
            }),
            "--format: expected text, binary, but got 'binray' (did you mean binary?)");
  EXPECT_EQ(read({"--format", "binary"}).choice<int>("format", {{"text", 1}, {"binary", 2}}, 1), 2);
  EXPECT_EQ(read({}).choice<int>("format", {{"text", 1}, {"binary", 2}}, 1), 1);
}

TEST(Arguments, RefusesTwoFlagsThatExcludeEachOther) {
  FlagTable table = table_without_operands();
  table.alternatives = {{"format", "parts"}};
  const auto given = read({"--format", "text", "--parts", "2"});
  EXPECT_EQ(refusal_by([&] { given.check_alternatives(table); }),
            "--format text: expected one of --format and --parts, but got both");
  EXPECT_EQ(refusal_by([&] { read({"--parts", "2"}).check_alternatives(table); }), "not refused");
}

TEST(Arguments, RefusesAFlagWithoutAnyOfThoseThatItNeeds) {
  FlagTable table = table_without_operands();
  table.needs = {{"force", {"format"}}, {"parts", {"format", "force"}}};
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    return refusal_by([&] { read(arguments).check_needs(table); });
  };
  EXPECT_EQ(refusal({"--force"}), "--force: expected --format with it");
  EXPECT_EQ(refusal({"--force=false"}), "not refused");
  EXPECT_EQ(refusal({"--force", "--format", "text"}), "not refused");
  EXPECT_EQ(refusal({"--parts", "2"}), "--parts 2: expected --format or --force with it");
  EXPECT_EQ(refusal({"--parts", "2", "--format", "text"}), "not refused");
}

TEST(Arguments, KnowsWhoGaveAValue) {
  EXPECT_EQ(read({"--parts", "2"}).origin("parts"), (Origin{OriginKind::kFlag, ""}));
  EXPECT_EQ(read({}).origin("parts"), Origin{});
  EXPECT_EQ(read({"--parts", "2", "--force"}).origins().size(), 2U);
}

TEST(Arguments, ReadsOperandsBetweenFlags) {
  const auto given = parse_arguments(table_of_copying(), {"a", "--parts", "2", "b", "--force"});
  EXPECT_THAT(given.operands(), ElementsAre("a", "b"));
  EXPECT_EQ(given.text("parts"), "2");
}

TEST(Arguments, RefusesMoreOrFewerOperandsThanThereAre) {
  EXPECT_EQ(refusal_of(table_of_copying(), {"a"}), "expected TO, but got none; see --help");
  EXPECT_EQ(refusal_of(table_of_copying(), {}), "expected FROM, but got none; see --help");
  EXPECT_EQ(refusal_of(table_of_copying(), {"a", "b", "c"}),
            "'c': expected only FROM, TO without a flag; --help lists the flags");
  EXPECT_EQ(refusal_of(table_without_operands(), {"a"}), "'a': expected a flag; --help lists them");
  EXPECT_EQ(refusal_of(table_of_copying(), {"--help"}), "not refused");
}

TEST(Arguments, SuggestsTheFlagThatWasMeant) {
  EXPECT_EQ(refusal_of(table_of_copying(), {"a", "b", "--frce"}),
            "--frce: expected a flag of this program (did you mean --force?); --help lists them");
  EXPECT_EQ(refusal_of(table_of_copying(), {"--quux=3"}),
            "--quux: expected a flag of this program; --help lists them");
}

}  // namespace
}  // namespace lockstep::apps
