#include "lockstep/datasets/clicks/click_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string joined(const std::string& label, const std::string& number, const std::string& category) {
  std::string line = label;
  for (int i = 0; i < kClickNumbers; ++i) line += "\t" + number;
  for (int i = 0; i < kClickCategories; ++i) line += "\t" + category;
  return line;
}

std::string error_of(const std::string& line) {
  ClickRow row;
  return parse_click_row(line, row).value_or("");
}

TEST(ClickRow, ReadsALineOfTheFormat) {
  // In the form of the first line of the Display Advertising Challenge.
  std::string line = "0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2";
  line +=
      "\t68fd1e64\t80e26c9b\tfb936136\t7b4723c4\t25c83c98\t7e0ccccf\tde7995b8\t1f89b562\ta73ee510\ta8cd5504";
  line +=
      "\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef\t8ba8b39a\t891b62e7\te5ba7672\tf54016b9\t21ddcdc9\tb1252a9d";
  line += "\t07b5194c\t\t3a171ecb\tc5c50484\te8b83407\t9727dd16";
  ClickRow row;
  ASSERT_EQ(parse_click_row(line, row), std::nullopt);
  EXPECT_FALSE(row.is_click);
  EXPECT_EQ(row.numbers[4], 1382);
  EXPECT_EQ(row.numbers[11], std::nullopt);
  EXPECT_EQ(row.numbers[12], 2);
  EXPECT_EQ(row.categories[0], 0x68fd1e64U);
  EXPECT_EQ(row.categories[21], std::nullopt);
  EXPECT_EQ(row.categories[25], 0x9727dd16U);
  EXPECT_EQ(click_row_text(row), line);
}

TEST(ClickRow, LinesComeAsTheyWent) {
  ClickRow row;
  for (const auto& line :
       {joined("1", "", ""), joined("0", "-3", "00000000"), joined("1", "9223372036854775807", "ffffffff")}) {
    ASSERT_EQ(parse_click_row(line, row), std::nullopt) << line;
    EXPECT_EQ(click_row_text(row), line);
  }
  // Nothing of the previous line remains.
  ASSERT_EQ(parse_click_row(joined("0", "", ""), row), std::nullopt);
  EXPECT_EQ(row, ClickRow());
}

TEST(ClickRow, SaysWhatIsWrong) {
  EXPECT_EQ(error_of(""), "field 1: expected a label of 0 or 1, but got ''");
  EXPECT_EQ(error_of(joined("2", "1", "")), "field 1: expected a label of 0 or 1, but got '2'");
  EXPECT_EQ(error_of(joined("1", "1.5", "")),
            "field 2: expected an integer of 64 bits or nothing, but got '1.5'");
  EXPECT_THAT(error_of(joined("1", "9223372036854775808", "")),
              HasSubstr("field 2: expected an integer of 64 bits"));
  EXPECT_THAT(error_of(joined("1", "1", "68fd1e6")), HasSubstr("field 15: expected 8 hexadecimal digits"));
  EXPECT_THAT(error_of(joined("1", "1", "-8fd1e64")), HasSubstr("but got '-8fd1e64'"));
  EXPECT_THAT(error_of(joined("1", "1", "68fd1e6g")), HasSubstr("but got '68fd1e6g'"));
  EXPECT_EQ(error_of("1\t2\t3"), "expected 40 tab-separated fields, but got 3");
  EXPECT_EQ(error_of(joined("1", "", "") + "\t"), "expected 40 tab-separated fields, but got 41");
  EXPECT_EQ(error_of(std::string(100, '\x01')),
            "field 1: expected a label of 0 or 1, but got '????????????????????????...'");
}

TEST(ClickRow, NumbersBecomeLogarithms) {
  EXPECT_EQ(click_feature(std::nullopt), 0);
  EXPECT_EQ(click_feature(-2), 0);
  EXPECT_EQ(click_feature(0), 0);
  EXPECT_FLOAT_EQ(click_feature(1), std::log(2.F));
  EXPECT_FLOAT_EQ(click_feature(std::numeric_limits<int64_t>::max()), 43.668274F);  // log(2^63)
}

TEST(ClickRow, IdsOfDifferentColumnsDiffer) {
  std::set<int64_t> ids;
  for (int column = 0; column < kClickCategories; ++column)
    for (const std::optional<uint32_t> category :
         {std::optional<uint32_t>(), std::optional<uint32_t>(0), std::optional<uint32_t>(UINT32_MAX)})
      ids.insert(click_id(column, category));
  EXPECT_EQ(ids.size(), size_t{3} * kClickCategories);
}

}  // namespace
}  // namespace lockstep
