#include "lockstep/apps/compare_strategies/trials/measured_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <stdexcept>

#include "lockstep/apps/compare_strategies/report/result_folder.h"
#include "lockstep/apps/compare_strategies/trials/parameter_file.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(MeasuredRun, IsReadAsItWasWritten) {
  const WorkFolder folder;
  const std::string path = folder.path() + "/run.json";
  const MeasuredRun run{
      .replicas = 2,
      .description = "two \"replicas\"",
      .data = "/some\xff/where",  // a path need not be UTF-8
      .parameters = 10,
      .examples = 640,
      .seconds = 0.1 + 0.2,
      .data_wait_seconds = 0.01,
      .communication_seconds = 0.02,
      .peak_memory_bytes = int64_t{3} << 40,
      .losses = {2.5, 0.1, std::nan(""), std::numeric_limits<double>::infinity()},
      .ranks = {{.rank = 1,
                 .measured = {.parameters = 3, .gradients = 4, .optimizer_state = 5, .buckets = 6},
                 .predicted = MemoryParts{.parameters = 3, .gathered_units = 7}},
                {.rank = 2}}};
  write_measured_run(path, run);
  const auto read = read_measured_run(path);
  EXPECT_EQ(read.replicas, 2);
  EXPECT_EQ(read.description, run.description);
  EXPECT_EQ(read.data, "/some\xef\xbf\xbd/where");
  EXPECT_EQ(read.parameters, 10);
  EXPECT_EQ(read.examples, 640);
  EXPECT_EQ(read.seconds, run.seconds);
  EXPECT_EQ(read.data_wait_seconds, 0.01);
  EXPECT_EQ(read.communication_seconds, 0.02);
  EXPECT_EQ(read.peak_memory_bytes, run.peak_memory_bytes);
  ASSERT_EQ(read.losses.size(), 4U);
  EXPECT_EQ(read.losses[1], 0.1);
  EXPECT_TRUE(std::isnan(read.losses[2]));
  EXPECT_FALSE(std::isfinite(read.losses[3]));
  EXPECT_DOUBLE_EQ(read.examples_per_second(), 640 / (0.1 + 0.2));
  ASSERT_EQ(read.ranks.size(), 2U);
  EXPECT_EQ(metric_row(read.ranks[0]), metric_row(run.ranks[0]));
  EXPECT_EQ(metric_row(read.ranks[1]), metric_row(run.ranks[1]));
  EXPECT_EQ(read.ranks[0].measured.optimizer_state, 5);
  EXPECT_EQ(read.ranks[0].predicted.value().gathered_units, 7);
  EXPECT_FALSE(read.ranks[1].predicted.has_value());
}

TEST(MeasuredRun, IsRefusedWhereItsFileIsMissingCutOffOrSomethingElse) {
  const WorkFolder folder;
  const std::string path = folder.path() + "/run.json";
  EXPECT_THAT(error_of([&] { read_measured_run(path); }), HasSubstr(path + ": expected a measurement"));
  for (const std::string text : {"", "{\"replicas\": 1", "{}", "[1]"}) {
    std::ofstream(path) << text;
    EXPECT_THAT(error_of([&] { read_measured_run(path); }), HasSubstr(path + ": expected a measurement"))
        << text;
  }
  EXPECT_THAT(error_of([&] { write_measured_run(folder.path() + "/none/run.json", {}); }),
              HasSubstr("cannot be written"));
}

TEST(MeasuredRun, WithoutRanksIsReadAsBeforeTheyWereMeasured) {
  const std::string text = measured_run_text({.seconds = 1});
  const std::string ranks = ",\"ranks\":[]";
  const size_t at = text.find(ranks);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_TRUE(parse_measured_run(text.substr(0, at) + text.substr(at + ranks.size()), "old").ranks.empty());
  EXPECT_THAT(error_of([&] {
                parse_measured_run(
                    text.substr(0, at) + ",\"ranks\":[{\"rank\":\"x\"}]" + text.substr(at + ranks.size()),
                    "odd");
              }),
              HasSubstr("odd: expected a measurement"));
}

TEST(MeasuredRun, OfSeveralWorkersHasAllTheirMemoryAndTheirMeanWaits) {
  const MeasuredRun first{.replicas = 2,
                          .examples = 64,
                          .seconds = 2,
                          .data_wait_seconds = 0.5,
                          .communication_seconds = 0.1,
                          .peak_memory_bytes = 100,
                          .losses = {1.5},
                          .ranks = {{.rank = 0, .measured = {.parameters = 8}}}};
  MeasuredRun second = first;
  second.ranks = {{.rank = 1, .measured = {.parameters = 9}}};
  second.seconds = 2.1;
  second.data_wait_seconds = 0.25;
  second.communication_seconds = 0.3;
  second.peak_memory_bytes = 50;
  const auto merged = merge_workers({first, second});
  EXPECT_EQ(merged.seconds, 2);
  EXPECT_EQ(merged.examples, 64) << "those of the global batches, which both trained on";
  EXPECT_DOUBLE_EQ(merged.data_wait_seconds, 0.375);
  EXPECT_DOUBLE_EQ(merged.communication_seconds, 0.2);
  EXPECT_EQ(merged.peak_memory_bytes, 150);
  ASSERT_EQ(merged.ranks.size(), 2U);
  EXPECT_EQ(merged.ranks[0].rank, 0);
  EXPECT_EQ(merged.ranks[1].measured.parameters, 9);
  EXPECT_THAT(merged.losses, ElementsAre(1.5));
  EXPECT_THROW(merge_workers({}), std::invalid_argument);
}

TEST(MeasuredRun, OfAChiefHasTheOthersMemoryAlone) {
  const MeasuredRun chief{
      .examples = 64, .seconds = 2, .communication_seconds = 0.1, .peak_memory_bytes = 100, .losses = {1.5}};
  MeasuredRun other;
  other.peak_memory_bytes = 50;
  const auto merged = merge_into_chief({chief, other, other});
  EXPECT_EQ(merged.seconds, 2);
  EXPECT_EQ(merged.examples, 64);
  EXPECT_DOUBLE_EQ(merged.communication_seconds, 0.1);
  EXPECT_EQ(merged.peak_memory_bytes, 200);
  EXPECT_THAT(merged.losses, ElementsAre(1.5));
  EXPECT_THROW(merge_into_chief({}), std::invalid_argument);
}

TEST(ParameterFile, KeepsEveryBit) {
  const WorkFolder folder;
  const std::string path = folder.path() + "/parameters";
  const std::vector<double> values{0.1, -0.0, 1e-310, std::numeric_limits<double>::max()};
  write_parameter_file(path, values);
  EXPECT_EQ(read_parameter_file(path), values);
  EXPECT_TRUE(std::signbit(read_parameter_file(path)[1]));
  write_parameter_file(path, {});
  EXPECT_TRUE(read_parameter_file(path).empty());
}

TEST(ParameterFile, IsRefusedWhereItIsMissingOrCutOff) {
  const WorkFolder folder;
  const std::string path = folder.path() + "/parameters";
  EXPECT_EQ(error_of([&] { read_parameter_file(path); }), path + ": cannot be read");
  std::ofstream(path) << "12345678901";
  EXPECT_EQ(error_of([&] { read_parameter_file(path); }),
            path + ": expected whole numbers of 8 bytes, but got 11 bytes");
  EXPECT_THAT(error_of([&] { write_parameter_file(folder.path() + "/none/p", {1.0}); }),
              HasSubstr("cannot be written"));
}

TEST(LargestDifference, IsThatOfTheValuesFurthestApart) {
  EXPECT_EQ(largest_difference({1, 2, 3}, {1, 2.5, 2.75}), 0.5);
  EXPECT_EQ(largest_difference({}, {}), 0);
  EXPECT_TRUE(std::isnan(largest_difference({1, std::nan("")}, {5, 2})));
  EXPECT_THROW(largest_difference({1}, {1, 2}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::apps
