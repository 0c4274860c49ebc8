// The content of plots. report_test.py checks their looks in a browser.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/reporting/html/internal/bar_plot.h"
#include "lockstep/training/reporting/html/internal/heat_map.h"
#include "lockstep/training/reporting/html/internal/line_plot.h"
#include "lockstep/training/reporting/html/internal/load_map.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Place {
  double x = 0;
  double y = 0;
};

/// The text between the first `before`, from `start` on, and the next quotation mark.
std::string quoted_after(const std::string& text, const std::string& before, size_t start = 0) {
  const size_t at = text.find(before, start);
  if (at == std::string::npos) return "";
  const size_t begin = at + before.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

/// The corners of the first line in a figure.
std::vector<Place> corners_of_line(const std::string& figure) {
  // The legend's keys come first, in their own svg elements.
  const size_t line = figure.find("<path class=\"line", figure.find("class=\"plot\""));
  if (line == std::string::npos) return {};
  std::istringstream data(quoted_after(figure, " d=\"", line));
  std::vector<Place> corners;
  char command = 0;
  for (Place place; data >> command >> place.x >> place.y;) corners.push_back(place);
  return corners;
}

TEST(LinePlotTest, DrawsPointsInProportion) {
  const std::string figure =
      line_plot_figure({.title = "Loss", .lines = {{"training", {{1, 0}, {2, 5}, {4, 10}}}}});
  const auto corners = corners_of_line(figure);
  ASSERT_THAT(corners, SizeIs(3));
  EXPECT_THAT((corners[1].x - corners[0].x) / (corners[2].x - corners[0].x), DoubleNear(1.0 / 3, 1e-3));
  EXPECT_THAT((corners[1].y - corners[0].y) / (corners[2].y - corners[0].y), DoubleNear(0.5, 1e-3));
  EXPECT_LT(corners[2].y, corners[0].y);  // y grows downwards in SVG
}

TEST(LinePlotTest, InterruptsALineWhereThereIsNoNumberAndMarksThePlace) {
  const double nan = std::nan("");
  const std::string figure = line_plot_figure(
      {.title = "Loss", .lines = {{"training", {{1, 1}, {2, nan}, {3, 2}, {4, 3}, {5, HUGE_VAL}}}}});
  EXPECT_EQ(count_of(figure, "class=\"odd s0\""), 2U);
  EXPECT_THAT(figure,
              AllOf(HasSubstr("NaN or infinite"), HasSubstr("epoch 2: nan"), HasSubstr("epoch 5: inf")));
  EXPECT_THAT(corners_of_line(figure), SizeIs(3));
  EXPECT_THAT(figure, Not(HasSubstr("\"nan")));
}

TEST(LinePlotTest, KeepsTheExtremesOfMorePointsThanCanBeSeen) {
  PlotLine line{.name = "loss"};
  for (int i = 0; i < 100000; ++i) line.points.push_back({static_cast<double>(i), std::sin(0.01 * i)});
  line.points[54321].y = 40;
  line.points[54322].y = std::nan("");
  line.points[65432].y = -40;
  const std::string figure = line_plot_figure({.title = "Loss", .lines = {line}});
  EXPECT_LT(figure.size(), 100000U);
  const auto corners = corners_of_line(figure);
  double top = 1e9;
  double bottom = -1e9;
  for (const auto& corner : corners) {
    top = std::min(top, corner.y);
    bottom = std::max(bottom, corner.y);
  }
  const auto alone =
      corners_of_line(line_plot_figure({.title = "Loss", .lines = {{"", {{0, 40}, {99999, -40}}}}}));
  EXPECT_EQ(top, alone[0].y);
  EXPECT_EQ(bottom, alone[1].y);
  EXPECT_EQ(count_of(figure, "class=\"odd s0\""), 1U);
}

TEST(LinePlotTest, IsDrawnWithoutAnyPoint) {
  EXPECT_THAT(line_plot_figure({.title = "Nothing"}), HasSubstr("Nothing"));
  EXPECT_THAT(line_plot_figure({.title = "Empty", .lines = {{"training", {}}}}), HasSubstr("Empty"));
}

TEST(LinePlotTest, EscapesItsTexts) {
  const std::string figure =
      line_plot_figure({.title = "<t>", .x_label = "<x>", .lines = {{"<a>", {{1, 1}}}, {"<b>", {{1, 2}}}}});
  EXPECT_THAT(figure, AllOf(HasSubstr("&lt;t&gt;"), HasSubstr("&lt;x&gt;"), HasSubstr("&lt;a&gt;"),
                            Not(HasSubstr("<t>")), Not(HasSubstr("<x>")), Not(HasSubstr("<a>")),
                            Not(HasSubstr("<b>"))));
}

/// The widths of a figure's bars.
std::vector<double> bar_widths(const std::string& figure) {
  const std::string bar = "class=\"bar\"";
  std::vector<double> widths;
  for (size_t at = figure.find(bar); at != std::string::npos; at = figure.find(bar, at + 1)) {
    widths.push_back(std::stod(quoted_after(figure, " width=\"", at)));
  }
  return widths;
}

TEST(BarPlotTest, DrawsBarsInProportionFromZero) {
  const auto widths =
      bar_widths(bar_plot_figure({.title = "Speed", .bars = {{"a", 10}, {"b", 25}, {"c", 0}}}));
  ASSERT_THAT(widths, SizeIs(3));
  EXPECT_THAT(widths[0] / widths[1], DoubleNear(0.4, 1e-3));
  EXPECT_EQ(widths[2], 0);
}

TEST(BarPlotTest, ShowsIntervalsAndTheReference) {
  const std::string figure =
      bar_plot_figure({.title = "Ratio", .bars = {{"a", 1}, {"b", 1.8, {{1.6, 2}}}}, .reference = 1});
  EXPECT_EQ(count_of(figure, "class=\"interval\""), 3U);  // a line and its two ends
  EXPECT_EQ(count_of(figure, "class=\"reference\""), 1U);
  EXPECT_THAT(figure, HasSubstr("b: 1.8 (1.6 to 2)"));
}

TEST(BarPlotTest, SaysWhyThereIsNoBar) {
  const std::string figure = bar_plot_figure(
      {.title = "Speed", .bars = {{"a", 3}, {"b", std::nan("")}, {"c", 5, {}, "failed with exit code 5"}}});
  EXPECT_THAT(bar_widths(figure), SizeIs(1));
  EXPECT_THAT(figure, AllOf(HasSubstr(">nan<"), HasSubstr(">failed with exit code 5<")));
  EXPECT_THAT(bar_plot_figure({.title = "Nothing"}), HasSubstr("Nothing"));
}

TEST(ConfusionFigureTest, WritesCountsAndShadesByShareOfTheRow) {
  const std::string figure = confusion_figure({.class_names = {"cat", "dog"}, .counts = {3, 1, 0, 8}});
  EXPECT_THAT(figure, AllOf(HasSubstr(">3</text>"), HasSubstr(">1</text>"), HasSubstr(">8</text>"),
                            Not(HasSubstr(">0</text>"))));
  EXPECT_THAT(figure, HasSubstr("true cat, predicted dog: 1 of 4 (25.0\u202F%)"));
  EXPECT_EQ(count_of(figure, "fill-opacity=\"0.5\""), 1U);  // the square root of a quarter
  EXPECT_EQ(count_of(figure, "fill-opacity=\"1\""), 1U);
  EXPECT_THAT(figure, HasSubstr("11 of 12 right"));
}

TEST(ConfusionFigureTest, LeavesOutCountsThatHaveNoRoomAndLabelsThatWouldTouch) {
  ConfusionCounts matrix;
  for (int i = 0; i < 100; ++i) matrix.class_names.push_back("class " + std::to_string(i));
  matrix.counts.assign(10000, 12);
  const std::string figure = confusion_figure(matrix);
  EXPECT_EQ(count_of(figure, "class=\"heat\""), 10000U);
  EXPECT_EQ(count_of(figure, "class=\"count\""), 0U);
  EXPECT_LT(count_of(figure, "<text"), 100U);
}

TEST(ConfusionFigureTest, TakesRowsWithoutExamples) {
  EXPECT_THAT(confusion_figure({.class_names = {"a", "b"}, .counts = {0, 0, 0, 0}}),
              HasSubstr("0 of 0 right"));
}

TEST(ExpertLoadFigureTest, ShowsTheLoadOfEachExpertInEachLayer) {
  const std::string figure =
      expert_load_figure({.when = "", .num_experts = 3, .loads = {1, 0.5, 1.5, 0, 3, 0.13}});
  EXPECT_EQ(count_of(figure, "class=\"heat\""), 6U);
  EXPECT_THAT(figure, AllOf(HasSubstr("layer 1, expert 3: 1.5 times an even share"), HasSubstr(">0.50<"),
                            HasSubstr(">0.13<"), HasSubstr("fill-opacity=\"0.75\""),
                            HasSubstr("Load of 3 experts in 2 layers: from 0 to 3 times an even share")));
  // The darkest shade begins at twice an even share.
  const auto darkest = figure.find("layer 2, expert 2: 3 times");
  EXPECT_EQ(quoted_after(figure, "fill-opacity=\"", figure.rfind("<rect", darkest)), "1");
}

TEST(ExpertLoadFigureTest, LeavesOutNumbersThatHaveNoRoom) {
  const std::string figure =
      expert_load_figure({.when = "", .num_experts = 64, .loads = std::vector<double>(128, 1.0)});
  EXPECT_EQ(count_of(figure, "class=\"heat\""), 128U);
  EXPECT_THAT(figure, Not(HasSubstr(">1.00<")));
}

TEST(ExpertLoadFigureTest, RefusesLoadsThatAreNotThoseOfWholeLayers) {
  EXPECT_THROW(expert_load_figure({.when = "", .num_experts = 2, .loads = {1, 1, 1}}), InvalidArgument);
  EXPECT_THROW(expert_load_figure({}), InvalidArgument);
  EXPECT_THROW(expert_load_figure({.when = "", .num_experts = 1, .loads = {-1}}), InvalidArgument);
}

TEST(ConfusionFigureTest, RefusesCountsThatAreNoMatrix) {
  EXPECT_THAT(
      [] {
        confusion_figure({.class_names = {"a", "b"}, .counts = {1, 2, 3}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("each pair of 2 classes, but got 3")));
  EXPECT_THROW(confusion_figure({}), InvalidArgument);
  EXPECT_THAT([] { confusion_figure({.class_names = {"a"}, .counts = {-1}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got -1")));
}

TEST(MostFrequentConfusionsTest, LeavesOutWhatWasRight) {
  const ConfusionCounts matrix{.class_names = {"a", "b", "c"}, .counts = {9, 1, 4, 2, 9, 0, 4, 0, 9}};
  const auto confusions = most_frequent_confusions(matrix, 3);
  ASSERT_THAT(confusions, SizeIs(3));
  EXPECT_EQ(confusions[0].count, 4);
  EXPECT_EQ(confusions[0].true_class, 0U);
  EXPECT_EQ(confusions[0].predicted_class, 2U);
  EXPECT_EQ(confusions[1].true_class, 2U);
  EXPECT_EQ(confusions[2].count, 2);
}

}  // namespace
}  // namespace lockstep
