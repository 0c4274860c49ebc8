#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/report.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

using measurement::MarkdownTable;
using measurement::peak_memory_bytes;

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

TEST(AlternatingPairs, TellTheRatioOfEachPair) {
  std::ostringstream progress;
  double seconds = 1;
  measure_alternating_pairs(
      3, [&] { return seconds *= 2; }, [] { return 4.0; }, &progress);
  EXPECT_EQ(progress.str(),
            "    pair 1 of 3: ratio 0.500\n"
            "    pair 2 of 3: ratio 1.000\n"
            "    pair 3 of 3: ratio 2.000\n");
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
                   {600, "images/s"}, Bar{Bar::Side::kAtLeast, 1.6});
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(),
              HasSubstr("| ours     | 300 images/s | theirs  | 200 images/s | 1.500 | 1.500 to 1.500 | "
                        ">= 1.60 | no  |"));
}

TEST(Report, GivesMemoryAsOursOverTheOthersAndRefusesMore) {
  const auto mebibytes = [](int count) { return std::vector<double>(15, count * 1048576.0); };
  const Bar at_most{Bar::Side::kAtMost, 1.05};
  Report report;
  report.add_memory("ours", "theirs", {.first = mebibytes(208), .second = mebibytes(200)}, at_most);
  report.add_memory("ours", "theirs", {.first = mebibytes(220), .second = mebibytes(200)}, at_most);
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(),
              HasSubstr("| 208 MiB | theirs  | 200 MiB | 1.040 | 1.040 to 1.040 | <= 1.05 | yes |"));
  EXPECT_THAT(text.str(),
              HasSubstr("| 220 MiB | theirs  | 200 MiB | 1.100 | 1.100 to 1.100 | <= 1.05 | no  |"));
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
