#include "lockstep/datasets/tokens/internal/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string text_in(const std::string& line, const std::string& field = "text") {
  std::string text = "before";
  const auto problem = parse_json_text(line, field, text);
  return problem ? "problem: " + *problem : text;
}

TEST(JsonText, IsTheTextOfTheField) {
  EXPECT_EQ(text_in(R"({"text": "a b"})"), "a b");
  EXPECT_EQ(text_in(R"( {"id": 7, "text": "\u00e9\n\"\ud83d\ude00", "meta": null} )"),
            "\xC3\xA9\n\"\xF0\x9F\x98\x80");
  EXPECT_EQ(text_in(R"({"text": ""})"), "");
  EXPECT_EQ(text_in(R"({"content": "c", "text": 7})", "content"), "c");
  EXPECT_EQ(text_in(R"({"text": "first", "text": "last"})"), "last");
}

TEST(JsonText, IsNotThatOfAFieldFurtherIn) {
  EXPECT_EQ(
      text_in(R"({"meta": {"text": "no", "list": [{"text": "no"}]}, "text": "yes", "after": {"text": 1}})"),
      "yes");
  EXPECT_THAT(text_in(R"({"meta": {"text": "no"}})"), HasSubstr("the field \"text\", but it is missing"));
  EXPECT_THAT(text_in(R"({"meta": "text"})"), HasSubstr("missing"));
}

TEST(JsonText, SaysWhatIsWrong) {
  EXPECT_THAT(text_in("{}"), HasSubstr("expected an object with the field \"text\", but it is missing"));
  EXPECT_THAT(text_in(R"({"text": 7})"), HasSubstr("expected text in the field \"text\", but got a number"));
  EXPECT_THAT(text_in(R"({"text": ["a"]})"), HasSubstr("but got an array"));
  EXPECT_THAT(text_in(R"({"text": {"text": "a"}})"), HasSubstr("but got an object"));
  EXPECT_THAT(text_in(R"({"text": null})"), HasSubstr("but got null"));
  EXPECT_THAT(text_in(R"(["text", "a"])"), HasSubstr("expected an object, but got an array"));
  EXPECT_THAT(text_in(R"("text")"), HasSubstr("expected an object, but got text"));
  for (const std::string broken :
       {"", "{", R"({"text": "a")", R"({"text": "a"} x)", R"({"text": 'a'})", R"({"text": "a",})",
        "{\"text\": \"\xFF\"}", R"({"text": "\ud83d"})", R"({"text": "a)", "\0"})
    EXPECT_THAT(text_in(broken), HasSubstr("expected JSON, but it is broken at byte ")) << broken;
}

TEST(JsonText, MayBeNestedHoweverDeep) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(text_in(R"({"a": )" + deep + std::string(deep.size(), ']') + R"(, "text": "t"})"), "t");
  EXPECT_THAT(text_in(R"({"a": )" + deep), HasSubstr("broken at byte"));
}

}  // namespace
}  // namespace lockstep
