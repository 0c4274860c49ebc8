#include "lockstep/datasets/text/internal/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/internal/pattern_syntax.h"
#include "lockstep/datasets/text/internal/utf8.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// All matches that are not empty.
std::vector<std::string> matches(const Pattern& pattern, const std::string& text) {
  PatternMatcher matcher;
  std::vector<std::string> found;
  for (size_t from = 0; from < text.size();) {
    const auto match = matcher.find(pattern, text, from);
    if (!match) break;
    if (match->end > match->begin) found.push_back(text.substr(match->begin, match->end - match->begin));
    from = match->end > match->begin ? match->end : match->end + 1;
  }
  return found;
}

std::vector<std::string> matches(const std::string& regex, const std::string& text) {
  return matches(Pattern::of_regex(regex), text);
}

/// The characters that have the property White_Space in Unicode's PropList.txt.
bool is_white_space_of_unicode(char32_t character) {
  return (character >= 9 && character <= 13) || character == 0x20 || character == 0x85 || character == 0xA0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200A) || character == 0x2028 ||
         character == 0x2029 || character == 0x202F || character == 0x205F || character == 0x3000;
}

TEST(PatternTest, SpaceMeansUnicodesWhiteSpaceEverywhere) {
  PatternMatcher matcher;
  const Pattern space = Pattern::of_regex(R"(\s)");
  const Pattern no_space = Pattern::of_regex(R"(\S)");
  const Pattern space_in_class = Pattern::of_regex(R"([\s])");
  const Pattern no_space_in_class = Pattern::of_regex(R"([\S])");
  const Pattern neither = Pattern::of_regex(R"([^\s\S])");
  for (char32_t character = 0; character < 0x3100; ++character) {
    std::string text;
    append_utf8(character, text);
    const bool is_space = is_white_space_of_unicode(character);
    EXPECT_EQ(matcher.find(space, text, 0).has_value(), is_space) << static_cast<uint32_t>(character);
    EXPECT_EQ(matcher.find(space_in_class, text, 0).has_value(), is_space)
        << static_cast<uint32_t>(character);
    EXPECT_EQ(matcher.find(no_space, text, 0).has_value(), !is_space) << static_cast<uint32_t>(character);
    EXPECT_EQ(matcher.find(no_space_in_class, text, 0).has_value(), !is_space)
        << static_cast<uint32_t>(character);
    EXPECT_FALSE(matcher.find(neither, text, 0)) << static_cast<uint32_t>(character);
  }
}

TEST(PatternTest, ReadsOnigurumasSyntax) {
  EXPECT_THAT(matches("a{,2}", "aaaab"), ElementsAre("aa", "aa"));  // PCRE2 takes this for a literal
  EXPECT_THAT(matches(R"(\v)", "a\x0B\n"), ElementsAre("\x0B"));    // to PCRE2, any vertical space
  EXPECT_THAT(matches("^b|c$", "a\nbc\n"), ElementsAre("b", "c"));  // of each line
  EXPECT_THAT(matches(R"(\x41|\u3042|\x{1F600})", "A\xE3\x81\x82\xF0\x9F\x98\x80"),
              ElementsAre("A", "\xE3\x81\x82", "\xF0\x9F\x98\x80"));
  EXPECT_THAT(matches(R"(\p{^L}+|\P{Lu}+)", "aB1"), ElementsAre("a", "1"));
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S'Ll'x"), ElementsAre("'S", "'Ll"));
  EXPECT_THAT(matches("a++|(b)?c", "aabcc"), ElementsAre("aa", "bc", "c"));
  EXPECT_THAT(matches(Pattern::of_text("a.b"), "axba.b"), ElementsAre("a.b"));
}

TEST(PatternTest, RefusesWhatDiffersBetweenTheSyntaxes) {
  for (const std::string regex :
       {R"(\w)",          R"(\b)",       R"(\h)", R"(\R)",   R"(\1)",        R"(\k<a>)", R"(\xE9)", R"(\x{})",
        R"(\x{1234567})", R"(\u12)",     R"(\p)", R"(\p{L)", R"(\p{Alpha})", "[]a]",     "[a",      "[a[b]]",
        "[a&&b]",         "[[:alpha:]]", "(?i)a", "(?#a)",   "(?<name>a)",   "a{2}?",    "a{2}+",   "a{1,2}+",
        "a{1}{2}",        "a{",          "a{x}",  "a{,}",    "a{1,2,3}",     "\\"}) {
    EXPECT_THROW(Pattern::of_regex(regex), std::invalid_argument) << regex;
  }
  for (const std::string regex : {"(a", "a)", "*a", R"(\x{110000})", "a{2,1}", ""})
    EXPECT_THROW(Pattern::of_regex(regex), std::invalid_argument) << regex;
  EXPECT_THROW(Pattern::of_regex(std::string(20'000, 'a')), std::invalid_argument);
}

TEST(PatternTest, ASetOfCharactersIsNoEndOfARange) {
  // Oniguruma refuses them, too.
  for (const std::string regex : {R"([\s-\x{4E00}])", R"([!-\s])", R"([\x{00}-\s])", R"([\S-a])",
                                  R"([\s-\s])", R"([\d-a])", R"([a-\d])", R"([\p{L}-a])", R"([^\s-a])"}) {
    EXPECT_THROW(Pattern::of_regex(regex), std::invalid_argument) << regex;
  }
  // At the begin or end of a class, or behind a backslash, a hyphen is a character.
  for (const std::string regex :
       {R"([-\s]+)", R"([\s-]+)", R"([^\S-]+)", R"([\-\s]+)", R"([\s\-]+)", R"([-\d\s]+)"})
    EXPECT_EQ(matches(regex, "a \xE3\x82\xAB").front(), " ") << regex;
  EXPECT_THAT(matches(R"([a-c-e]+)", "b-ed"), ElementsAre("b-e"));
}

TEST(PatternTest, LongTextsNeedNoStack) {
  const std::string text(500'000, 'x');
  EXPECT_EQ(matches("(?:(?=x)(?:x|y))+", text), std::vector<std::string>{text});
}

TEST(PatternTest, APatternThatNeedsTooManyStepsFails) {
  // Each way to read the letters as ones and twos is tried; without a "b" in the text, none would be.
  EXPECT_THROW(matches("(?:a|aa)+b", std::string(100, 'a') + " b"), DataError);
}

TEST(PatternTest, TheMessageShowsThePatternAsPrintableText) {
  // A pattern comes from a file, which could otherwise move a terminal's cursor.
  EXPECT_THAT(message_of<DataError>([] { matches("(?:a|aa)+b\x1B?", std::string(100, 'a') + " b"); }),
              AllOf(HasSubstr(R"('(?:a|aa)+b\x1B?')"), Not(HasSubstr("\x1B"))));
}

TEST(Utf8Test, ExactlyTheEncodedCharactersAreValid) {
  const auto is_valid = [](const std::string& text) { return valid_utf8_prefix(text) == text.size(); };
  for (char32_t character = 0; character < 0x110000; ++character) {
    std::string text;
    append_utf8(character, text);
    const bool is_surrogate = character >= 0xD800 && character < 0xE000;
    EXPECT_EQ(is_valid(text), !is_surrogate) << static_cast<uint32_t>(character);
    EXPECT_EQ(first_character(text), character);
    EXPECT_EQ(utf8_length(text.front()), text.size());
    if (text.size() > 1) {
      EXPECT_FALSE(is_valid(text.substr(0, text.size() - 1)));
      EXPECT_FALSE(is_valid(text.substr(1)));
    }
  }
  // Bytes that decode to a character which has a shorter form, or to none.
  for (const std::string text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                 "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF", "\x80"}) {
    EXPECT_EQ(valid_utf8_prefix("12345678 " + text + "x"), 9);
  }
}

}  // namespace
}  // namespace lockstep
