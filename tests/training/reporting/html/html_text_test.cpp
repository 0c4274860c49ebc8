#include "lockstep/training/reporting/html/internal/html_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string base64_of(std::string_view text) {
  return base64(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

TEST(EscapeHtmlTest, EscapesWhatHtmlReadsOtherwise) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_html("plain, with\nlines\tand \u00fc \u2264 \U0001F600"),
            "plain, with\nlines\tand \u00fc \u2264 \U0001F600");
}

TEST(EscapeHtmlTest, ReplacesWhatIsNoText) {
  EXPECT_EQ(escape_html(std::string_view("a\0b", 3)), "a\uFFFDb");
  EXPECT_EQ(escape_html("\x1b[31m\x7f"), "\uFFFD[31m\uFFFD");
  EXPECT_EQ(escape_html("\xFF\xC3"), "\uFFFD\uFFFD");  // no lead byte, and one without its second byte
  EXPECT_EQ(escape_html("\xC0\xAF"), "\uFFFD\uFFFD");  // a slash in an overlong form
  EXPECT_EQ(escape_html("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(escape_html("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(escape_html("\xE2\x82<"), "\uFFFD\uFFFD&lt;");  // the character after a cut one is still escaped
}

// RFC 4648, section 10.
TEST(Base64Test, MatchesTheVectorsOfItsRfc) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("foob"), "Zm9vYg==");
  EXPECT_EQ(base64_of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_of("\xFF\xFE\xFD"), "//79");
}

TEST(HtmlTableTest, EscapesItsCellsAndMarksItsRows) {
  const HtmlTable table{
      .columns = {{"Name"}, {"Images", true}}, .rows = {{"<b>", "1"}, {"two", "2"}}, .marked_rows = {1}};
  EXPECT_EQ(html_table(table),
            "<div class=\"scroll\"><table><thead><tr><th>Name</th><th "
            "class=\"number\">Images</th></tr></thead><tbody>\n"
            "<tr><td>&lt;b&gt;</td><td class=\"number\">1</td></tr>\n"
            "<tr class=\"marked\"><td>two</td><td class=\"number\">2</td></tr>\n"
            "</tbody></table></div>\n");
}

TEST(HtmlTableTest, RefusesARowWithAnotherNumberOfCells) {
  EXPECT_THAT(
      [] {
        html_table({.columns = {{"Name"}}, .rows = {{"a", "b"}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected 1 cells a row, but got 2")));
}

}  // namespace
}  // namespace lockstep
