#include "lockstep/training/reporting/records/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>

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

// The expected time is from GNU date: date -u -d @1709210096.
TEST(RunRecordTest, AStartSaysWhenAndWhere) {
  const RunStart start{.time = std::chrono::system_clock::time_point{std::chrono::seconds(1709210096)},
                       .hosts = {"node1", "node2"},
                       .version = "1.2.3"};
  EXPECT_THAT(metric_row(start),
              ElementsAre(Pair("time", MetricValue("2024-02-29T12:34:56Z")),
                          Pair("hosts", MetricValue("node1,node2")), Pair("version", MetricValue("1.2.3"))));
  EXPECT_THAT(metric_row(RunStart{.version = "1.2.3"}), ElementsAre(Pair("version", MetricValue("1.2.3"))));
}

TEST(RunRecordTest, ARunThatStartsNowKnowsItsTimeAndMachine) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const auto before = std::chrono::system_clock::now();
  const RunStart start = RunStart::now();
  ASSERT_TRUE(start.time.has_value());
  EXPECT_GE(*start.time, before);
  EXPECT_LE(*start.time, std::chrono::system_clock::now());
  EXPECT_THAT(start.hosts, ElementsAre(std::string(host.data())));
  EXPECT_THAT(start.version, ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(RunRecordTest, MemorySaysWhosePeakItIsAndLeavesOutWhatWasNotMeasured) {
  EXPECT_THAT(
      metric_row(MemoryRecord{.parameters = 424, .gradients = 8, .communication_buckets = 16, .peak = 99}),
      ElementsAre(Pair("parameters", MetricValue(int64_t{424})), Pair("buffers", MetricValue(int64_t{0})),
                  Pair("gradients", MetricValue(int64_t{8})),
                  Pair("communication_buckets", MetricValue(int64_t{16})),
                  Pair("peak_of_gpus", MetricValue(int64_t{99}))));
  const auto row =
      metric_row(MemoryRecord{.optimizer_state = 5, .activations = 6, .peak = 7, .is_of_process = true});
  EXPECT_THAT(row, ::testing::Contains(Pair("optimizer_state", MetricValue(int64_t{5}))));
  EXPECT_THAT(row, ::testing::Contains(Pair("activations", MetricValue(int64_t{6}))));
  EXPECT_EQ(row.back(), (MetricRow::value_type("peak_of_process", int64_t{7})));
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
