#include "lockstep/apps/shared/command_line/configuration_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using testing::TemporaryFile;
using ::testing::UnorderedElementsAre;

FlagTable table_of_cooking() {
  FlagTable table{.program = "cook",
                  .summary = "Cooks.",
                  .flags = {{"What", "minutes", "N", "How long"},
                            {"What", "salt", "X", "How much"},
                            {"What", "spices", "LIST", "Which"},
                            {"What", "pot", "NAME", "Which"},
                            {"What", "lid", "", "Closed"},
                            {"What", "grams", "N", "Of rice"},
                            {"What", "cups", "N", "Instead"},
                            {"Run", "table", "N", "For whom", "", FlagRole::kProcess},
                            {"Run", "guest", "NAME", "At the table", "", FlagRole::kProcess},
                            {"Run", "burns", "N", "At the table"},
                            {"Run", "steam", "N", "Under the lid"},
                            {"Run", "config", "FILE", "This", "", FlagRole::kAction}},
                  .alternatives = {{"grams", "cups"}},
                  .dependents = {{"lid", "pot"}},
                  .needs = {{"burns", {"table", "guest"}}, {"steam", {"lid"}}}};
  for (auto& flag : common_flags()) table.flags.push_back(flag);
  return table;
}

ConfigurationFile read_text(const std::string& text) {
  const TemporaryFile file(text);
  return read_configuration_file(file.path(), table_of_cooking());
}

/// The error message for a refused file, without the file's path in front.
std::string refusal_of_file(const std::string& text) {
  const TemporaryFile file(text);
  try {
    read_configuration_file(file.path(), table_of_cooking());
  } catch (const UsageError& error) {
    const std::string message = error.what();
    const size_t at = message.find(file.path());
    return at == std::string::npos ? "names no file: " + message
                                   : message.substr(0, at) + message.substr(at + file.path().size());
  }
  return "not refused";
}

std::string values(const std::string& text) {
  return R"({"format_version": 1, "values": )" + text + "}";
}

TEST(ConfigurationFile, ReadsValuesOfEveryTypeAsTheirFlagsAreTyped) {
  const auto file = read_text(values(
      R"({"minutes": {"value": 5, "origin": "flag"}, "salt": {"value": 0.1, "origin": "file", "name": "x"},
          "spices": ["a", "b"], "pot": "iron", "lid": false, "grams": null})"));
  EXPECT_THAT(file.texts,
              UnorderedElementsAre(Pair("minutes", "5"), Pair("salt", "0.1"), Pair("spices", "a,b"),
                                   Pair("pot", "iron"), Pair("lid", "false")));
}

TEST(ConfigurationFile, ReadsNumbersExactly) {
  const auto file = read_text(values(R"({"minutes": 18446744073709551615, "salt": 0.30000000000000004})"));
  EXPECT_EQ(file.texts.at("minutes"), "18446744073709551615");
  EXPECT_EQ(std::stod(file.texts.at("salt")), 0.1 + 0.2);
  EXPECT_EQ(read_text(values(R"({"salt": 3})")).texts.at("salt"), "3");
}

TEST(ConfigurationFile, LeavesOutWhatBelongsToOneProcess) {
  EXPECT_THAT(read_text(values(R"({"table": {"value": 4, "origin": "flag"}, "minutes": 1})")).texts,
              UnorderedElementsAre(Pair("minutes", "1")));
}

TEST(ConfigurationFile, DoesNotReadWhatCameOfTheValues) {
  EXPECT_THAT(read_text(R"({"format_version": 1, "program": "cook", "version": "9", "values": {},
                            "resolved": {"anything": [1, 2]}})")
                  .texts,
              ::testing::IsEmpty());
}

TEST(ConfigurationFile, RefusesKeysThatItDoesNotKnow) {
  EXPECT_EQ(refusal_of_file(values(R"({"minute": 5})")),
            ": values.minute: expected a known key (did you mean minutes?), but got 5");
  EXPECT_EQ(refusal_of_file(values(R"({"zzz": {"value": 5}})")),
            ": values.zzz: expected a known key, but got {\"value\":5}");
  EXPECT_EQ(refusal_of_file(R"({"format_version": 1, "valeus": {}})"),
            ": valeus: expected a known key (did you mean values?), but got {}");
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": {"value": 5, "orign": "flag"}})")),
            ": values.minutes.orign: expected a known key (did you mean origin?), but got \"flag\"");
  // A flag that performs an action holds no value.
  EXPECT_THAT(refusal_of_file(values(R"({"config": "x"})")),
              HasSubstr("values.config: expected a known key"));
  EXPECT_THAT(refusal_of_file(values(R"({"help": true})")), HasSubstr("values.help: expected a known key"));
}

TEST(ConfigurationFile, RefusesValuesOfTheWrongType) {
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": "five"})")),
            ": values.minutes: expected a whole number, but got \"five\"");
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": {"value": 5.5}})")),
            ": values.minutes.value: expected a whole number, but got 5.5");
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": 99999999999999999999})")),
            ": values.minutes: expected a whole number, but got 1e+20");
  EXPECT_EQ(refusal_of_file(values(R"({"salt": true})")), ": values.salt: expected a number, but got true");
  EXPECT_EQ(refusal_of_file(values(R"({"lid": "yes"})")),
            ": values.lid: expected true or false, but got \"yes\"");
  EXPECT_EQ(refusal_of_file(values(R"({"pot": 3})")), ": values.pot: expected a text, but got 3");
  for (const std::string list : {R"("a,b")", R"(["a,b"])", "[1]", "[]"}) {
    EXPECT_EQ(refusal_of_file(values("{\"spices\": " + list + "}")),
              ": values.spices: expected an array of texts without commas, or null, but got " + list);
  }
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": {"origin": "flag"}})")),
            ": values.minutes: expected an object with a value, but got {\"origin\":\"flag\"}");
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": [5]})")),
            ": values.minutes: expected a whole number, but got [5]");
  // Also if the value is not used.
  EXPECT_EQ(refusal_of_file(values(R"({"table": "x"})")),
            ": values.table: expected a whole number, but got \"x\"");
}

TEST(ConfigurationFile, RefusesOriginsThatThereAreNot) {
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": {"value": 5, "origin": "guess"}})")),
            ": values.minutes.origin: expected default, environment, file, flag, but got \"guess\"");
  EXPECT_EQ(refusal_of_file(values(R"({"minutes": {"value": 5, "name": 3}})")),
            ": values.minutes.name: expected a text, but got 3");
}

TEST(ConfigurationFile, TakesAFileThatTheProgramWroteUnderItsFormerName) {
  FlagTable table = table_of_cooking();
  table.former_program = "boil";
  const TemporaryFile file(R"({"format_version": 1, "program": "boil", "values": {"minutes": 5}})");
  EXPECT_THAT(read_configuration_file(file.path(), table).texts, UnorderedElementsAre(Pair("minutes", "5")));
}

TEST(ConfigurationFile, RefusesFormatsThatItDoesNotKnow) {
  EXPECT_EQ(refusal_of_file(R"({"format_version": 2, "values": {}})"),
            ": format_version: expected 1 at most, which this version of Lockstep knows, but got 2");
  for (const std::string version : {"0", "-1", "1.0", "\"1\"", "null"}) {
    EXPECT_EQ(refusal_of_file("{\"format_version\": " + version + ", \"values\": {}}"),
              ": format_version: expected a whole number above 0, but got " + version);
  }
  EXPECT_THAT(refusal_of_file(R"({"values": {}})"), HasSubstr("format_version: expected a whole number"));
  EXPECT_EQ(refusal_of_file(R"({"format_version": 1, "program": "fry", "values": {}})"),
            ": program: expected \"cook\", but got \"fry\"");
  EXPECT_EQ(refusal_of_file(R"({"format_version": 1})"), ": values: expected an object, but got null");
  EXPECT_EQ(refusal_of_file("[1]"), ": the file: expected an object, but got [1]");
}

TEST(ConfigurationFile, NamesThePlaceOfBadJson) {
  EXPECT_THAT(refusal_of_file("{\"format_version\": 1,\n \"values\": {\"minutes\": 5,}}"),
              HasSubstr("up to line 2, column 26"));
  for (const std::string text : {"", "   ", "{", "{\"values\"", "\xff\xfe", "{} {}", "nan"}) {
    EXPECT_THAT(refusal_of_file(text), HasSubstr("expected JSON")) << text;
  }
  EXPECT_THAT(refusal_of_file(values(R"({"lid": true, "lid": false})")), HasSubstr("the key 'lid' twice"));
}

TEST(ConfigurationFile, RefusesFilesBeyondAllMeasure) {
  EXPECT_THAT(refusal_of_file(values("{}") + std::string(size_t{2} << 20, ' ')),
              HasSubstr("expected at most 1048576 bytes"));
  EXPECT_THAT(refusal_of_file(values("{\"pot\": " + std::string(100, '[') + std::string(100, ']') + "}")),
              HasSubstr("at this depth"));
  // The message stays short.
  EXPECT_LT(refusal_of_file(values("{\"minutes\": \"" + std::string(5000, 'x') + "\"}")).size(), 200U);
}

TEST(ConfigurationFile, RefusesWhatCannotBeRead) {
  const TemporaryFile file("{}");
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      read_configuration_file(path, table_of_cooking());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(refusal(file.folder() + "/none.json"),
            file.folder() +
                "/none.json: expected a configuration file that can be read, but: No such file or directory");
  EXPECT_EQ(refusal(file.folder()), file.folder() + ": expected a regular file, but it is a folder");
  EXPECT_EQ(refusal("/dev/zero"), "/dev/zero: expected a regular file, but it is a device");
  // Opening it in the usual way would wait forever.
  const std::string pipe = file.folder() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe), pipe + ": expected a regular file, but it is a named pipe");
}

/// As a shell's --config <(command) does.
TEST(ConfigurationFile, ReadsAPipeThatTheProcessHasOpenAlready) {
  const std::string text = "{\"format_version\": 1, \"values\": {}}";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  EXPECT_TRUE(
      read_configuration_file("/dev/fd/" + std::to_string(ends[0]), table_of_cooking()).texts.empty());
  ::close(ends[0]);
}

TEST(ConfigurationFile, ReadsBackWhatWasWritten) {
  const std::vector<Setting> settings{
      {"minutes", int64_t{-3}, {}},
      {"salt", 0.1 + 0.2, {OriginKind::kFlag, ""}},
      {"spices", std::vector<std::string>{"a", "b c"}, {OriginKind::kFile, "other.json"}},
      {"pot", std::string("\"iron\"\n\xc3\xa9"), {OriginKind::kEnvironment, "POT"}},
      {"lid", true, {}},
      {"grams", uint64_t{18446744073709551615U}, {}},
      {"cups", {}, {}},
      {"table", int64_t{4}, {OriginKind::kFlag, ""}}};
  const std::string text = configuration_json({.program = "cook", .version = "1.2.3", .values = settings});
  EXPECT_THAT(read_text(text).texts,
              UnorderedElementsAre(Pair("minutes", "-3"), Pair("salt", "0.30000000000000004"),
                                   Pair("spices", "a,b c"), Pair("pot", "\"iron\"\n\xc3\xa9"),
                                   Pair("lid", "true"), Pair("grams", "18446744073709551615")));
}

TEST(ConfigurationFile, WritesEveryValueWithItsOriginInTheOrderGiven) {
  const auto root = nlohmann::ordered_json::parse(
      configuration_json({.program = "cook",
                          .version = "1.2.3",
                          .values = {{"salt", 0.5, {OriginKind::kFlag, ""}},
                                     {"pot", std::string("iron"), {OriginKind::kEnvironment, "POT"}},
                                     {"cups", {}, {}}},
                          .resolved = {{"color", false, {OriginKind::kEnvironment, "NO_COLOR"}}}}));
  EXPECT_EQ(root, nlohmann::ordered_json::parse(R"({
    "format_version": 1, "program": "cook", "version": "1.2.3",
    "values": {"salt": {"value": 0.5, "origin": "flag"},
               "pot": {"value": "iron", "origin": "environment", "name": "POT"},
               "cups": {"value": null, "origin": "default"}},
    "resolved": {"color": {"value": false, "origin": "environment", "name": "NO_COLOR"}}})"));
}

TEST(ConfigurationFile, WritesNoNumberThatJsonDoesNotHave) {
  for (const double salt : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(configuration_json({.program = "cook", .values = {{"salt", salt, {}}}}), InvalidArgument);
  }
}

/// The arguments with a file's values added.
Arguments merged(const std::vector<std::string>& arguments, const std::string& json) {
  const TemporaryFile file(json);
  Arguments given = parse_arguments(table_of_cooking(), arguments);
  given.add(read_configuration_file(file.path(), table_of_cooking()), table_of_cooking());
  return given;
}

TEST(ConfigurationFile, GivesWayToTheCommandLine) {
  const auto given =
      merged({"--minutes", "9", "--lid=false"}, values(R"({"minutes": 5, "salt": 2, "lid": true})"));
  EXPECT_EQ(given.text("minutes"), "9");
  EXPECT_EQ(given.origin("minutes"), (Origin{OriginKind::kFlag, ""}));
  EXPECT_FALSE(given.is_on("lid"));
  EXPECT_EQ(given.text("salt"), "2");
  EXPECT_EQ(given.origin("salt").kind, OriginKind::kFile);
  EXPECT_THAT(given.origin("salt").name, ::testing::EndsWith("/config.json"));
  EXPECT_EQ(given.origin("pot"), Origin{});
}

TEST(ConfigurationFile, GivesWayToAnAlternativeOnTheCommandLine) {
  const auto given = merged({"--cups", "1"}, values(R"({"grams": 100})"));
  EXPECT_FALSE(given.has("grams"));
  EXPECT_NO_THROW(given.check_alternatives(table_of_cooking()));
  try {
    merged({}, values(R"({"grams": 100, "cups": 1})")).check_alternatives(table_of_cooking());
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("config.json: values.grams 100: expected one of --grams and --cups, but got both"));
  }
}

TEST(ConfigurationFile, LosesWhatDependsOnAValueThatTheCommandLineChanges) {
  const std::string json = values(R"({"pot": "iron", "lid": true})");
  EXPECT_FALSE(merged({"--pot", "clay"}, json).has("lid"));
  EXPECT_TRUE(merged({"--pot", "iron"}, json).is_on("lid"));
  EXPECT_TRUE(merged({}, json).is_on("lid"));
  // The file does not say which pot its lid is for.
  EXPECT_TRUE(merged({"--pot", "clay"}, values(R"({"lid": true})")).is_on("lid"));
}

TEST(ConfigurationFile, LosesWhatNeedsAFlagThatIsGivenAnewEachTime) {
  const std::string json = values(R"({"table": 4, "burns": 2})");
  EXPECT_FALSE(merged({}, json).has("burns"));
  EXPECT_EQ(merged({"--table", "5"}, json).text("burns"), "2");
  EXPECT_EQ(merged({"--guest", "a"}, json).text("burns"), "2");
  // The command line is not the file: there the flag is wrong.
  EXPECT_EQ(merged({"--burns", "3"}, json).text("burns"), "3");
  EXPECT_THROW(merged({"--burns", "3"}, json).check_needs(table_of_cooking()), UsageError);
}

TEST(ConfigurationFile, LosesWhatNeedsAFlagThatTheCommandLineReplaced) {
  FlagTable table = table_of_cooking();
  table.needs.push_back({"salt", {"grams"}});
  const TemporaryFile file(values(R"({"grams": 100, "salt": 2})"));
  const auto merge = [&](const std::vector<std::string>& arguments) {
    Arguments given = parse_arguments(table, arguments);
    given.add(read_configuration_file(file.path(), table), table);
    return given;
  };
  EXPECT_TRUE(merge({}).has("salt"));
  EXPECT_FALSE(merge({"--cups", "1"}).has("salt"));
}

TEST(ConfigurationFile, KeepsWhatLacksAFlagThatItCouldGive) {
  const auto given = merged({}, values(R"({"steam": 2})"));
  EXPECT_EQ(given.text("steam"), "2");
  EXPECT_THROW(given.check_needs(table_of_cooking()), UsageError);
  EXPECT_NO_THROW(merged({}, values(R"({"steam": 2, "lid": true})")).check_needs(table_of_cooking()));
}

TEST(ConfigurationFile, IsNamedInErrorsAboutItsValues) {
  const auto given = merged({}, values(R"({"minutes": 500, "pot": "irn"})"));
  EXPECT_THAT(given.spelling("minutes"), ::testing::EndsWith("/config.json: values.minutes"));
  const auto refusal = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refusal([&] { given.integer("minutes", {.least = 1, .most = 60}, 1); }),
              ::testing::EndsWith(
                  "config.json: values.minutes: expected a whole number from 1 to 60, but got '500'"));
  EXPECT_THAT(refusal([&] {
                given.name("pot", {"iron", "clay"}, "iron");
              }),
              ::testing::EndsWith(
                  "config.json: values.pot: expected iron, clay, but got 'irn' (did you mean iron?)"));
}

}  // namespace
}  // namespace lockstep::apps
