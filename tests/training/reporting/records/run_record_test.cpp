#include "lockstep/training/reporting/records/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(RunRecordTest, RowsHaveWhatWasMeasured) {
  const EpochRecord epoch{
      .epoch = 2, .step = 40, .loss = 0.5, .validation_accuracy = 0.9, .others = {{"auc", 0.7}}};
  EXPECT_THAT(metric_row(epoch),
              ElementsAre(Pair("epoch", MetricValue(int64_t{2})), Pair("step", MetricValue(int64_t{40})),
                          Pair("loss", MetricValue(0.5)), Pair("validation_accuracy", MetricValue(0.9)),
                          Pair("auc", MetricValue(0.7))));
  EXPECT_THAT(metric_row(StepRecord{.step = 7, .learning_rate = 0.1}),
              ElementsAre(Pair("step", MetricValue(int64_t{7})), Pair("learning_rate", MetricValue(0.1))));
}

TEST(RunRecordTest, ARecordsOwnValueComesBeforeAnotherOfItsName) {
  const StepRecord step{
      .step = 1, .loss = 0.5, .others = {{"loss", 3.0}, {"step", 4.0}, {"norm", 1.0}, {"norm", 2.0}}};
  EXPECT_THAT(metric_row(step), ElementsAre(Pair("step", MetricValue(int64_t{1})),
                                            Pair("loss", MetricValue(0.5)), Pair("norm", MetricValue(1.0))));
}

TEST(RunRecordTest, TotalsSayHowARunEnded) {
  const auto row = with_kind("end", metric_row(RunTotals{.status = RunStatus::kInterrupted,
                                                         .reason = "SIGTERM",
                                                         .epochs = 1,
                                                         .steps = 12,
                                                         .images = 768,
                                                         .seconds = 3.5,
                                                         .start_up_seconds = 0.5,
                                                         .steps_before = 4}));
  EXPECT_THAT(row,
              ElementsAre(Pair("kind", MetricValue("end")), Pair("status", MetricValue("interrupted")),
                          Pair("reason", MetricValue("SIGTERM")), Pair("epochs", MetricValue(int64_t{1})),
                          Pair("steps", MetricValue(int64_t{12})), Pair("images", MetricValue(int64_t{768})),
                          Pair("seconds", MetricValue(3.5)), Pair("start_up_seconds", MetricValue(0.5)),
                          Pair("steps_before", MetricValue(int64_t{4}))));
  EXPECT_EQ(metric_row(RunTotals{}).back().first, "start_up_seconds");  // nothing was resumed
  EXPECT_EQ(status_name(RunStatus::kCompleted), "completed");
  EXPECT_EQ(status_name(RunStatus::kStoppedEarly), "stopped_early");
  EXPECT_EQ(status_name(RunStatus::kFailed), "failed");
}

}  // namespace
}  // namespace lockstep
