#include "lockstep/apps/convert_data/click_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_text;
using ::testing::HasSubstr;

/// Returns a line with these first number and first category.
std::string line_with(const std::string& number, const std::string& category) {
  return "0\t" + number + std::string(12, '\t') + "\t" + category + std::string(25, '\t');
}

TEST(LineReader, ReturnsEveryLineOnceWhateverTheSizesOfBlocks) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += std::string(static_cast<size_t>(i % 97), 'x') + "\n";
  text += "without an end";
  write_text(folder.file("lines"), text);
  for (const int64_t most : {int64_t{1}, int64_t{7}, int64_t{16'384}, int64_t{1'000'000}}) {
    LineReader reader(folder.file("lines"));
    std::string read;
    int64_t num_lines = 0;
    for (LineBlock block = reader.next(most); block.num_lines > 0; block = reader.next(most)) {
      EXPECT_LE(block.num_lines, most);
      EXPECT_EQ(block.first_line, num_lines + 1);
      num_lines += block.num_lines;
      read += block.text;
    }
    EXPECT_EQ(read, text);
    EXPECT_EQ(num_lines, 40'001);
  }
}

TEST(LineReader, CutsOffLinesThatAreTooLongAndGoesOnWithTheNext) {
  const TemporaryFolder folder;
  write_text(folder.file("lines"), "a\n" + std::string(3 << 20, 'x') + "\nb\n" + std::string(2 << 20, 'y'));
  LineReader reader(folder.file("lines"));
  std::vector<size_t> sizes;
  for (LineBlock block = reader.next(1); block.num_lines > 0; block = reader.next(1))
    sizes.push_back(block.text.size());
  ASSERT_EQ(sizes.size(), 4U);
  EXPECT_EQ(sizes[0], 2U);
  EXPECT_EQ(sizes[2], 2U);
  EXPECT_LT(sizes[1], size_t{1} << 21);
  const LineBlock block{.text = std::string(1 << 17, 'x') + "\n", .first_line = 5, .num_lines = 1};
  EXPECT_THAT(message_of<DataError>([&] { parse_click_lines("f", block, false); }),
              HasSubstr("f: line 5: expected a line of click logs, but got one of more than 65536 bytes"));
}

TEST(ParsedLines, CountLinesThatClickRowTextSpellsDifferently) {
  const GeneratedClicks clicks({.count = 100, .seed = 1});
  std::vector<std::string> lines;
  for (size_t i = 0; i < 100; ++i) lines.push_back(click_row_text(clicks.row(i)));
  for (const char* number : {"", "0", "-1", "00", "-0", "007", "10", "-01", "9223372036854775807"})
    for (const char* category : {"", "00000000", "abcdef01", "ABCDEF01", "0000000A"})
      for (const char* end : {"", "\r"}) lines.push_back(line_with(number, category) + end);
  LineBlock block;
  int64_t num_respelled = 0, first = 0;
  for (const std::string& line : lines) {
    block.text += line + "\n";
    ++block.num_lines;
    ClickRow row;
    const std::string content = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    ASSERT_FALSE(parse_click_row(content, row)) << line;
    const bool is_same = click_row_text(row) == line;
    EXPECT_EQ(is_spelled_as_written(line), is_same) << line;
    if (!is_same && num_respelled++ == 0) first = block.num_lines;
  }
  const ParsedLines parsed = parse_click_lines("f", block, false);
  EXPECT_EQ(parsed.rows.size(), lines.size());
  EXPECT_EQ(parsed.num_respelled, num_respelled);
  EXPECT_EQ(parsed.first_respelled, first);
}

TEST(ParsedLines, ALineWithoutALineBreakIsSpelledDifferently) {
  const LineBlock block{.text = line_with("1", ""), .num_lines = 1};
  EXPECT_EQ(parse_click_lines("f", block, false).num_respelled, 1);
}

TEST(ParsedLines, NameOrCountMalformedLines) {
  const LineBlock block{.text = line_with("1", "") + "\nbad\n" + line_with("-9223372036854775808", "") + "\n",
                        .first_line = 11,
                        .num_lines = 3};
  EXPECT_THAT(message_of<DataError>([&] { parse_click_lines("f", block, false); }),
              HasSubstr("f: line 12: "));
  const ParsedLines parsed = parse_click_lines("f", block, true);
  EXPECT_EQ(parsed.rows.size(), 1U);
  EXPECT_EQ(parsed.num_malformed, 2);
  EXPECT_THAT(parsed.first_malformed, HasSubstr("line 12: "));
}

}  // namespace
}  // namespace lockstep::apps
