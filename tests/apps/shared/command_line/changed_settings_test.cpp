#include "lockstep/apps/shared/command_line/changed_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/apps/shared/command_line/configuration_file.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

const FlagTable kTable{.program = "cook",
                       .summary = "Cooks.",
                       .flags = {{"What", "minutes", "N", "How long"},
                                 {"What", "salt", "X", "How much"},
                                 {"What", "pot", "NAME", "Which"},
                                 {"What", "spices", "LIST", "Which"},
                                 {"What", "lid", "", "Closed"},
                                 {"What", "quiet", "", "No words", "", FlagRole::kOperation},
                                 {"What", "table", "N", "For whom", "", FlagRole::kProcess}}};

std::vector<Setting> settings_with(const Setting& changed) {
  std::vector<Setting> settings{
      {"minutes", int64_t{5}, {}}, {"salt", 0.1, {}}, {"pot", std::string("iron"), {}},
      {"spices", Words{"a"}, {}},  {"lid", true, {}}, {"quiet", true, {}},
      {"table", int64_t{1}, {}}};
  for (auto& setting : settings) {
    if (setting.name == changed.name) setting.value = changed.value;
  }
  return settings;
}

const std::string kEarlier = configuration_json({.program = "cook", .values = settings_with({})});

std::vector<std::string> changes_by(const Setting& changed, const std::string& earlier = kEarlier) {
  return changed_settings(earlier, settings_with(changed), kTable);
}

TEST(ChangedSettings, NameTheOldAndTheNewValue) {
  EXPECT_THAT(changes_by({}), IsEmpty());
  EXPECT_THAT(changes_by({"minutes", int64_t{10}, {}}), ElementsAre("minutes 5 -> 10"));
  EXPECT_THAT(changes_by({"salt", 1e-7, {}}), ElementsAre("salt 0.1 -> 1e-07"));
  EXPECT_THAT(changes_by({"pot", std::string("clay"), {}}), ElementsAre("pot iron -> clay"));
  EXPECT_THAT(changes_by({"spices", Words{"a", "b"}, {}}), ElementsAre("spices a -> a,b"));
  EXPECT_THAT(changes_by({"spices", {}, {}}), ElementsAre("spices a -> none"));
  EXPECT_THAT(changes_by({"lid", false, {}}), ElementsAre("lid true -> false"));
}

TEST(ChangedSettings, LeaveOutWhatDoesNotChangeTheResult) {
  EXPECT_THAT(changes_by({"quiet", false, {}}), IsEmpty());
  EXPECT_THAT(changes_by({"table", int64_t{2}, {}}), IsEmpty());
}

TEST(ChangedSettings, LeaveOutFlagsThatTheEarlierProgramDidNotHave) {
  EXPECT_THAT(
      changes_by({"minutes", int64_t{10}, {}}, R"({"values": {"minutes": 9, "lid": {"value": null}}})"),
      ElementsAre("minutes 9 -> 10", "lid none -> true"));
}

TEST(ChangedSettings, AreNoneIfTheEarlierOnesAreUnknown) {
  for (const std::string earlier : {"", "a text", "[]", "{}", R"({"values": 3})"})
    EXPECT_THAT(changes_by({"minutes", int64_t{10}, {}}, earlier), IsEmpty()) << earlier;
}

TEST(ChangedSettings, MakeOneLine) {
  EXPECT_EQ(changed_settings_text({}), "");
  EXPECT_EQ(changed_settings_text({"minutes 5 -> 10", "salt 0.1 -> none"}),
            "resumes with other settings than before: minutes 5 -> 10, salt 0.1 -> none");
}

}  // namespace
}  // namespace lockstep::apps
