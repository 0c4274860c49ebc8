#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/machine.h"
#include "lockstep/benchmarks/markdown_table.h"
#include "lockstep/benchmarks/report.h"

namespace lockstep::benchmarks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AlternatingPairs, ChangeWhoBegins) {
  std::string order;
  const auto pairs = measure_alternating_pairs(
      3,
      [&] {
        order += 'a';
        return 6.0;
      },
      [&] {
        order += 'b';
        return static_cast<double>(order.size());
      });
  EXPECT_EQ(order, "abbaab");
  EXPECT_THAT(pairs.ratios(), ElementsAre(6.0 / 2, 6.0 / 3, 6.0 / 6));
}

TEST(MarkdownTable, AlignsItsColumns) {
  MarkdownTable table({"who", "images/s"});
  table.add_row({"somebody", "12"});
  std::ostringstream text;
  text << table;
  EXPECT_EQ(text.str(),
            "| who      | images/s |\n"
            "|----------|----------|\n"
            "| somebody | 12       |\n");
}

TEST(MarkdownTable, RefusesARowOfAnotherLength) {
  MarkdownTable table({"one", "two"});
  EXPECT_THROW(table.add_row({"alone"}), std::invalid_argument);
}

TEST(Report, GivesSpeedAsTheOthersTimeOverOurs) {
  Report report;
  report.add_speed("ours", "theirs",
                   {.first = std::vector<double>(15, 3.0), .second = std::vector<double>(15, 2.0)},
                   /*images=*/600, Bar{Bar::Side::kAtLeast, 1.6});
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(),
              HasSubstr("| ours     | 300 images/s | theirs  | 200 images/s | 1.500 | 1.500 to 1.500 | "
                        ">= 1.60 | no  |"));
}

TEST(PeakMemory, GrowsByWhatIsTouched) {
  constexpr size_t kBytes = 256 << 20;
  const int64_t before = peak_memory_bytes();
  const std::vector<char> touched(kBytes, 1);
  EXPECT_GE(peak_memory_bytes() - before, static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_EQ(touched.back(), 1);
}

}  // namespace
}  // namespace lockstep::benchmarks
