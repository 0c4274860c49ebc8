#include "lockstep/training/reporting/records/pipeline_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

PipelineActionRecord an_action() {
  return {.rank = 1,
          .action = {.op = PipelineOp::kBackwardInputs, .stage = 2, .micro_batch = 3},
          .planned_begin = 0.5,
          .planned_end = 0.75,
          .begin = 0.625,
          .end = 1.25};
}

/// Returns the action's row with another value.
MetricRow with_value(MetricRow row, const std::string& name, const MetricValue& value) {
  for (auto& [key, old] : row) {
    if (key == name) old = value;
  }
  return row;
}

TEST(PipelineRecordTest, RowsHaveWhatWasPlannedAndMeasured) {
  EXPECT_THAT(
      metric_row(an_action()),
      ElementsAre(Pair("rank", MetricValue(int64_t{1})), Pair("op", MetricValue("backward_inputs")),
                  Pair("stage", MetricValue(int64_t{2})), Pair("micro_batch", MetricValue(int64_t{3})),
                  Pair("planned_begin", MetricValue(0.5)), Pair("planned_end", MetricValue(0.75)),
                  Pair("begin", MetricValue(0.625)), Pair("end", MetricValue(1.25))));
  const PipelineRecord record{.step = 3,
                              .schedule = "1f1b",
                              .ranks = 4,
                              .stages = 5,
                              .micro_batches = 8,
                              .num_actions = 100,
                              .planned_seconds = 1.5,
                              .seconds = 2,
                              .planned_bubble = 0.25,
                              .bubble = 0.5};
  EXPECT_THAT(
      metric_row(record),
      ElementsAre(Pair("step", MetricValue(int64_t{3})), Pair("schedule", MetricValue("1f1b")),
                  Pair("ranks", MetricValue(int64_t{4})), Pair("stages", MetricValue(int64_t{5})),
                  Pair("micro_batches", MetricValue(int64_t{8})), Pair("actions", MetricValue(int64_t{100})),
                  Pair("planned_seconds", MetricValue(1.5)), Pair("seconds", MetricValue(2.0)),
                  Pair("planned_bubble", MetricValue(0.25)), Pair("bubble", MetricValue(0.5))));
  EXPECT_EQ(metric_row(pipeline_record_of(metric_row(record))), metric_row(record));
}

TEST(PipelineRecordTest, ActionsOfAllKindsAreReadAsTheyWereWritten) {
  for (const PipelineOp op :
       {PipelineOp::kForward, PipelineOp::kBackward, PipelineOp::kBackwardInputs,
        PipelineOp::kBackwardWeights, PipelineOp::kSendActivation, PipelineOp::kReceiveActivation,
        PipelineOp::kSendGradient, PipelineOp::kReceiveGradient}) {
    PipelineActionRecord action = an_action();
    action.action.op = op;
    EXPECT_EQ(pipeline_action_of(metric_row(action)), action) << pipeline_op_name(op);
    EXPECT_EQ(is_pipeline_computation(op), pipeline_op_name(op).find("ward") != std::string::npos);
  }
  // Other writers leave out the fraction of a whole number.
  EXPECT_EQ(
      pipeline_action_of(with_value(metric_row(an_action()), "planned_begin", int64_t{0}))->planned_begin, 0);
}

TEST(PipelineRecordTest, ARowWithoutAUsableValueIsNoAction) {
  const MetricRow row = metric_row(an_action());
  ASSERT_TRUE(pipeline_action_of(row).has_value());
  for (size_t i = 0; i < row.size(); ++i) {
    MetricRow cut = row;
    cut.erase(cut.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(pipeline_action_of(cut).has_value()) << "without " << row[i].first;
  }
  for (const char* name : {"rank", "stage", "micro_batch"}) {
    for (const MetricValue& wrong :
         {MetricValue(int64_t{-1}), MetricValue(int64_t{1} << 31), MetricValue(1.0), MetricValue("1")})
      EXPECT_FALSE(pipeline_action_of(with_value(row, name, wrong)).has_value()) << name;
  }
  for (const char* name : {"planned_begin", "planned_end", "begin", "end"}) {
    for (const MetricValue& wrong : {MetricValue(-1.0), MetricValue(std::nan("")), MetricValue(HUGE_VAL),
                                     MetricValue("nan"), MetricValue(INT64_MAX)})
      EXPECT_FALSE(pipeline_action_of(with_value(row, name, wrong)).has_value()) << name;
  }
  EXPECT_FALSE(pipeline_action_of(with_value(row, "op", "sideways")).has_value());
  EXPECT_FALSE(pipeline_action_of(with_value(row, "end", 0.5)).has_value()) << "ends before it begins";
  EXPECT_FALSE(pipeline_action_of(with_value(row, "planned_end", 0.25)).has_value());
}

TEST(PipelineRecordTest, ValuesOfAStepThatAreOfNoUseCountAsAbsent) {
  const auto record = pipeline_record_of({{"step", "three"},
                                          {"schedule", int64_t{1}},
                                          {"ranks", int64_t{-4}},
                                          {"stages", 4.5},
                                          {"micro_batches", INT64_MAX},
                                          {"planned_seconds", -1.0},
                                          {"seconds", std::nan("")},
                                          {"planned_bubble", 1.5},
                                          {"bubble", int64_t{1}}});
  EXPECT_EQ(record.step, 0);
  EXPECT_EQ(record.schedule, "");
  EXPECT_EQ(record.ranks, 0);
  EXPECT_EQ(record.stages, 0);
  EXPECT_EQ(record.micro_batches, 0);
  EXPECT_EQ(record.num_actions, 0);
  EXPECT_EQ(record.planned_seconds, 0);
  EXPECT_EQ(record.seconds, 0);
  EXPECT_EQ(record.planned_bubble, 0);
  EXPECT_EQ(record.bubble, 1);
}

}  // namespace
}  // namespace lockstep
