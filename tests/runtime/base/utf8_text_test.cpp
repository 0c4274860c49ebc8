#include "lockstep/runtime/base/internal/utf8_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// UTF-8 of a code point, by the table of RFC 3629, section 3.
std::string utf8(uint32_t code) {
  const auto continuation = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), continuation(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), continuation(6), continuation(0)};
  return {static_cast<char>(0xF0 | code >> 18), continuation(12), continuation(6), continuation(0)};
}

TEST(Utf8CharacterLengthTest, KnowsEveryCodePoint) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    const std::string character = utf8(code);
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(utf8_character_length(character + "x"), is_surrogate ? 0 : character.size()) << code;
    if (code < 0x80) continue;
    ASSERT_EQ(utf8_character_length(character.substr(0, character.size() - 1)), 0U) << code;
    ASSERT_EQ(utf8_character_length(character.substr(1)), 0U) << code;
  }
}

TEST(Utf8CharacterLengthTest, RefusesLongerFormsAndWhatIsBeyondTheLast) {
  EXPECT_EQ(utf8_character_length("\xC0\xAF"), 0U);
  EXPECT_EQ(utf8_character_length("\xC1\xBF"), 0U);
  EXPECT_EQ(utf8_character_length("\xE0\x9F\xBF"), 0U);
  EXPECT_EQ(utf8_character_length("\xF0\x8F\xBF\xBF"), 0U);
  EXPECT_EQ(utf8_character_length("\xF4\x90\x80\x80"), 0U);
  EXPECT_EQ(utf8_character_length("\xF8\x88\x80\x80\x80"), 0U);
}

TEST(PrintableTest, LeavesTextAsItIs) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("plain, \u00a0\u00fc \u2264 \U0001F600"), "plain, \u00a0\u00fc \u2264 \U0001F600");
}

TEST(PrintableTest, ShowsControlCharacters) {
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[31m\x7f", 10)), "a\\x00b\\x0a\\x1b[31m\\x7f");
  EXPECT_EQ(printable("\u0080\u009bm\u009f"), "\\u0080\\u009bm\\u009f");
}

TEST(PrintableTest, ShowsEachByteThatIsNoCharacterAndKeepsWhatFollowsIt) {
  EXPECT_EQ(printable("'\xC2'"), "'\\xc2'");
  EXPECT_EQ(printable("\xC2\xC2\x9B"), "\\xc2\\u009b");  // the second byte begins a control character
  EXPECT_EQ(printable("\xE2\x82<\xFF"), "\\xe2\\x82<\\xff");
}

/// Unicode's explicit formatting characters (UAX #9), and their neighbours, which are none.
TEST(PrintableTest, ShowsCharactersThatReorderText) {
  EXPECT_EQ(printable("gpj.\u202egnp"), "gpj.\\u202egnp");
  EXPECT_EQ(printable("\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069"),
            "\\u202a\\u202b\\u202c\\u202d\\u2066\\u2067\\u2068\\u2069");
  EXPECT_EQ(printable("\u2029\u202f\u2065\u206a"), "\u2029\u202f\u2065\u206a");
}

TEST(PrintableTest, LeavesLineEndsAndTabsOfSeveralLines) {
  EXPECT_EQ(printable_lines("a\tb\r\n\x1b[0m\u202e\n"), "a\tb\\x0d\n\\x1b[0m\\u202e\n");
}

TEST(ShortenedTest, KeepsWholeCharacters) {
  EXPECT_EQ(count_characters("\u00fc\u2264\U0001F600a"), 4U);
  EXPECT_EQ(shortened("mirrored", 8), "mirrored");
  EXPECT_EQ(shortened("mirrored", 5), "mirr\u2026");
  EXPECT_EQ(shortened("\u00fc\u2264\U0001F600a", 3), "\u00fc\u2264\u2026");
}

TEST(ShortenedTest, KeepsBothEndsWhereItCutsTheMiddle) {
  EXPECT_EQ(shortened_in_the_middle("great white shark 42", 20), "great white shark 42");
  EXPECT_EQ(shortened_in_the_middle("great white shark 42", 12), "great \u2026rk 42");
  EXPECT_EQ(shortened_in_the_middle("\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc", 4), "\u00fc\u00fc\u2026\u00fc");
}

}  // namespace
}  // namespace lockstep
