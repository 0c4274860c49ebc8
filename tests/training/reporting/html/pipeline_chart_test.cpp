#include "lockstep/training/reporting/html/internal/pipeline_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/reporting/html/report.h"
#include "lockstep/training/reporting/records/measured_pipeline.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

size_t times_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// A box of a chart, as a browser draws it.
struct DrawnBox {
  std::string style;
  double left = 0;
  double top = 0;
  double height = 0;
  double width = 0;
  std::string tip;
};

std::string between(const std::string& text, const std::string& before, const std::string& after,
                    size_t start) {
  const size_t begin = text.find(before, start) + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

/// The boxes in their order. The legend has paths, too, which come before the plot.
std::vector<DrawnBox> boxes_in(const std::string& figure) {
  std::vector<DrawnBox> boxes;
  for (size_t at = figure.find("<path", figure.find("class=\"plot\"")); at != std::string::npos;
       at = figure.find("<path", at + 1)) {
    DrawnBox box{.style = between(figure, "class=\"", "\"", at),
                 .tip = between(figure, "<title>", "</title>", at)};
    const std::string shape = between(figure, " d=\"", "\"", at);
    EXPECT_EQ(std::sscanf(shape.c_str(), "M%lf %lfv%lfh%lf", &box.left, &box.top, &box.height, &box.width), 4)
        << shape;
    boxes.push_back(box);
  }
  return boxes;
}

/// A record whose measured times are `slower` times the planned ones.
PipelineRecord record_of(const PipelineSchedule& schedule, double slower = 1) {
  PipelineRecord record =
      pipeline_record(schedule, simulate_pipeline(schedule, uniform_pipeline_times(schedule, 0.01, 0.02)));
  for (auto& action : record.actions) {
    action.begin *= slower;
    action.end *= slower;
  }
  record.seconds *= slower;
  return record;
}

TEST(PipelineFigureTest, DrawsTheComputationsOfBothPanelsInProportion) {
  const auto schedule = one_forward_one_backward_schedule(2, 3);
  const auto boxes = boxes_in(pipeline_figure(record_of(schedule, 1.5)));
  ASSERT_THAT(boxes, SizeIs(2 * 2 * 2 * 3));
  // Each panel has 6 boxes of rank 0, then 6 of rank 1. 1F1B of 2 ranks: F0 F1 B0 F2 B1 B2, and F0 B0 F1 ...,
  // with a backward twice as long as a forward, in units of the forward's 10 ms.
  const std::vector<double> begins{0, 1, 4, 6, 7, 10, 1, 2, 4, 5, 7, 8};
  const std::vector<double> lasts{1, 1, 2, 1, 2, 2, 1, 2, 1, 2, 1, 2};
  const double unit = boxes[1].left - boxes[0].left;
  for (size_t i = 0; i < begins.size(); ++i) {
    SCOPED_TRACE(boxes[i].tip);
    EXPECT_NEAR(boxes[i].left, boxes[0].left + begins[i] * unit, 0.05);
    EXPECT_NEAR(boxes[i].width, lasts[i] * unit - 0.8, 0.05);  // less the gap
    const auto& measured = boxes[begins.size() + i];
    EXPECT_NEAR(measured.left, boxes[0].left + 1.5 * begins[i] * unit, 0.05);
    EXPECT_NEAR(measured.width, 1.5 * lasts[i] * unit - 0.8, 0.05);
    EXPECT_EQ(boxes[i].style, lasts[i] == 1 ? "f" : "b");
    EXPECT_EQ(measured.style, boxes[i].style);
  }
  EXPECT_EQ(boxes[0].top, boxes[5].top);
  EXPECT_GE(boxes[6].top, boxes[0].top + boxes[0].height);   // the next rank
  EXPECT_GE(boxes[12].top, boxes[6].top + boxes[6].height);  // planned above measured
  EXPECT_EQ(boxes[2].tip, "rank 0, stage 0, micro-batch 0: backward, 20 ms");
  EXPECT_EQ(boxes[12 + 2].tip, "rank 0, stage 0, micro-batch 0: backward, 30 ms");
  EXPECT_EQ(boxes.back().tip, "rank 1, stage 1, micro-batch 2: backward, 30 ms");
}

TEST(PipelineFigureTest, StatesBothBubbles) {
  auto record = record_of(one_forward_one_backward_schedule(4, 8), 1.2);
  record.bubble = 0.2905;
  const std::string figure = pipeline_figure(record);
  EXPECT_THAT(figure, AllOf(HasSubstr("Planned: bubble 0.273, 330 ms"),  // 3 / 11
                            HasSubstr("Measured: bubble 0.290, 396 ms"),
                            HasSubstr("4 ranks over time; bubble planned 0.273, measured 0.290")));
  // Rank 3 of 1F1B never waits, and rank 0 waits 3 of 11.
  EXPECT_EQ(times_in(figure, "rank 0 waits 0.273 of its time"), 2U);
  EXPECT_EQ(times_in(figure, "rank 3 waits 0.000 of its time"), 2U);
}

TEST(PipelineFigureTest, TellsKindsOfComputationsAndStagesOfARankApart) {
  const std::string halves = pipeline_figure(record_of(zero_bubble_v_schedule(2, 4)));
  EXPECT_THAT(halves, AllOf(HasSubstr(">forward</li>"), HasSubstr(">backward for inputs</li>"),
                            HasSubstr(">backward for weights</li>"), HasSubstr("later stages of a rank</li>"),
                            Not(HasSubstr(">backward</li>"))));
  const auto boxes = boxes_in(halves);
  ASSERT_THAT(boxes, SizeIs(2 * 4 * 3 * 4));
  for (const auto& box : boxes) {
    // Ranks have the stages 0 and 3, and 1 and 2.
    const bool is_later =
        box.tip.find("stage 3") < box.tip.size() || box.tip.find("stage 2") < box.tip.size();
    const std::string kind = box.tip.find("forward") < box.tip.size()  ? "f"
                             : box.tip.find("inputs") < box.tip.size() ? "i"
                                                                       : "w";
    EXPECT_EQ(box.style, (is_later ? "later " : "") + kind) << box.tip;
  }
  EXPECT_THAT(pipeline_figure(record_of(gpipe_schedule(2, 4))),
              AllOf(HasSubstr(">backward</li>"), Not(HasSubstr("later"))));
}

TEST(PipelineFigureTest, NumbersBoxesThatHaveRoom) {
  const std::string few = pipeline_figure(record_of(gpipe_schedule(2, 4)));
  EXPECT_EQ(times_in(few, "class=\"on-heat\""), 2U * 2 * 2 * 4);
  const std::string many = pipeline_figure(record_of(gpipe_schedule(2, 200)));
  EXPECT_EQ(times_in(many, "class=\"on-heat\""), 0U);
  EXPECT_THAT(boxes_in(many), SizeIs(2 * 2 * 2 * 200));
}

TEST(PipelineFigureTest, StaysSmallForManyComputations) {
  const std::string with_tips = pipeline_figure(record_of(interleaved_schedule(8, 2, 64)));
  EXPECT_THAT(boxes_in(with_tips), SizeIs(2 * 8 * 2 * 2 * 64));
  EXPECT_LT(with_tips.size(), 600'000U);
  // So many that no pointer could rest on one: a path for each rank, panel and style.
  const auto large = record_of(interleaved_schedule(16, 2, 256));
  const std::string merged = pipeline_figure(large);
  EXPECT_EQ(times_in(merged, "<path"), 2U * 16 * 4 + 3);  // and the legend's
  EXPECT_EQ(times_in(merged, "micro-batch"), 0U);
  EXPECT_LT(merged.size(), 1'000'000U);
}

TEST(PipelineFigureTest, LeavesOutAChartThatNobodyCouldRead) {
  EXPECT_THAT(pipeline_figure(record_of(gpipe_schedule(129, 1))), IsEmpty());
  EXPECT_THAT(pipeline_figure(record_of(gpipe_schedule(128, 1))), Not(IsEmpty()));
  EXPECT_THAT(pipeline_figure(record_of(gpipe_schedule(2, 7501))), IsEmpty());
  EXPECT_THAT(report_html({.pipeline = record_of(gpipe_schedule(129, 1))}),
              AllOf(HasSubstr("too many computations or ranks for a chart"), HasSubstr("bubble planned")));
}

TEST(PipelineFigureTest, TakesTimesOfAllSizes) {
  for (const auto& [slower, unit] : std::vector<std::pair<double, std::string>>{
           {1e-4, "microseconds"}, {1, "milliseconds"}, {100, "seconds"}, {1e9, "seconds"}, {0, "seconds"}}) {
    PipelineRecord record = record_of(gpipe_schedule(2, 2));
    for (auto& action : record.actions) {
      for (double* time : {&action.planned_begin, &action.planned_end, &action.begin, &action.end})
        *time *= slower;
    }
    const std::string figure = pipeline_figure(record);
    EXPECT_THAT(figure, HasSubstr(">" + unit + "</text>")) << slower;
    EXPECT_THAT(figure, Not(HasSubstr("nan"))) << slower;
    EXPECT_THAT(boxes_in(figure), SizeIs(16)) << slower;
  }
}

TEST(PipelineFigureTest, RefusesRecordsThatMakeNoChart) {
  const auto message_for = [](const auto& damage) {
    PipelineRecord record = record_of(gpipe_schedule(2, 2));
    damage(record);
    return [record] { pipeline_figure(record); };
  };
  const auto expect_refused = [&](const auto& damage, const std::string& text) {
    EXPECT_THAT(message_for(damage), ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  expect_refused([](auto& record) { record.actions.clear(); },
                 "[PipelineRecord] expected computations, but got none among 0 actions");
  expect_refused(
      [](auto& record) { record.actions.resize(1), record.actions[0].action.op = PipelineOp::kSendGradient; },
      "but got none among 1 actions");
  expect_refused([](auto& record) { record.actions[3].rank = 2; }, "expected ranks from 0 to 1, but got 2");
  expect_refused([](auto& record) { record.actions[3].rank = -1; }, "but got -1");
  expect_refused([](auto& record) { record.ranks = 0; }, "expected ranks from 0 to -1, but got 0");
  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0, 1e10}) {
    expect_refused([&](auto& record) { record.actions[0].end = wrong; },
                   "s measured for forward of stage 0 for micro-batch 0 on rank 0");
    expect_refused([&](auto& record) { record.actions[0].planned_end = wrong; },
                   "expected times from 0 to 1e9 s, but got 0 to");
  }
}

TEST(PipelineFigureTest, EscapesTheNameOfTheSchedule) {
  PipelineRecord record = record_of(gpipe_schedule(2, 2));
  record.schedule = "<script>" + std::string(200, 'x');
  const std::string html = report_html({.pipeline = record});
  EXPECT_THAT(html, AllOf(HasSubstr("Schedule &lt;script&gt;xxx"), Not(HasSubstr("<script>")),
                          Not(HasSubstr(std::string(50, 'x')))));
}

TEST(PipelineFigureTest, IsPartOfTheReport) {
  const std::string html = report_html({.pipeline = record_of(one_forward_one_backward_schedule(4, 8))});
  EXPECT_THAT(html, AllOf(HasSubstr("<h2>Pipeline</h2>"), HasSubstr("<figcaption>Schedule 1f1b</figcaption>"),
                          HasSubstr("4 stages on 4 ranks, 8 micro-batches: bubble planned 0.273, measured "
                                    "0.273")));
  EXPECT_THAT(report_html({}), Not(HasSubstr("Pipeline")));
}

}  // namespace
}  // namespace lockstep
