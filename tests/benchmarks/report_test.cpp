#include "lockstep/benchmarks/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep::benchmarks {
namespace {

using ::testing::HasSubstr;

Report report_of_a_run() {
  Report report;
  // Lockstep is twice as fast in every pair: 100 images in 1 s against 2 s.
  report.add_speed("1 replica", "LibTorch alone", {std::vector<double>(6, 2.0), std::vector<double>(6, 1.0)},
                   {100, "images/s"}, Bar{Bar::Side::kAtLeast, 0.98});
  report.add_start("Lockstep", {0.5, 0.25, 4});
  return report;
}

TEST(Report, PrintsItsRowsAsMarkdown) {
  std::ostringstream text;
  text << report_of_a_run();
  EXPECT_THAT(text.str(), HasSubstr("1 replica"));
  EXPECT_THAT(text.str(), HasSubstr("100 images/s"));
  EXPECT_THAT(text.str(), HasSubstr("50 images/s"));
  EXPECT_THAT(text.str(), HasSubstr("2.000 to 2.000"));
  EXPECT_THAT(text.str(), HasSubstr("0.25 s"));
}

TEST(Report, HasTheSameNumbersInJson) {
  const auto json = nlohmann::json::parse(report_of_a_run().json());
  ASSERT_EQ(json["ratios"].size(), 1);
  const auto& ratio = json["ratios"][0];
  EXPECT_EQ(ratio["lockstep"], "1 replica");
  EXPECT_EQ(ratio["against"], "LibTorch alone");
  EXPECT_EQ(ratio["lockstep_median"], 100);
  EXPECT_EQ(ratio["against_median"], 50);
  EXPECT_EQ(ratio["ratio"], 2);
  EXPECT_EQ(ratio["ratio_interval_95"], (std::vector<double>{2, 2}));
  EXPECT_EQ(ratio["met"], true);
  ASSERT_EQ(json["starts"].size(), 1);
  EXPECT_EQ(json["starts"][0]["seconds_median"], 0.5);
  EXPECT_EQ(json["starts"][0]["seconds_least"], 0.25);
  EXPECT_EQ(json["starts"][0]["seconds_most"], 4);
}

TEST(Report, HasTheRatioOfEveryPairInJson) {
  const AlternatingPairs pairs{{8, 2, 4, 6, 3, 10}, {4, 4, 1, 2, 3, 4}};
  const std::vector<double> in_order{2, 0.5, 4, 3, 1, 2.5};
  Report report;
  report.add_speed("ours", "theirs", pairs, {100, "images/s"}, std::nullopt);
  report.add_memory("ours", "theirs", pairs, std::nullopt);
  report.add_op("nccl", {}, pairs);
  const auto json = nlohmann::json::parse(report.json());
  EXPECT_EQ(json["ratios"][0]["pair_ratios"], in_order);
  EXPECT_EQ(json["ratios"][1]["pair_ratios"], in_order);
  EXPECT_EQ(json["ops"][0]["pair_ratios"], in_order);
}

/// The op takes half of the reference's 4 ms in every pair.
Report report_of_ops() {
  const OpRow row{.replicas = "2 replicas on gpu:0", .tensors = "4 MiB", .bytes = 4 << 20};
  Report report;
  report.add_reference_op(row, std::vector<double>(6, 0.004));
  report.add_op("nccl", row, {std::vector<double>(6, 0.004), std::vector<double>(6, 0.002)});
  report.add_unmeasured_op("ring", "2 replicas on gpu:0", "nobody has one");
  return report;
}

TEST(Report, PrintsTheTableOfCrossDeviceOps) {
  std::ostringstream text;
  text << report_of_ops();
  EXPECT_THAT(text.str(), HasSubstr("| hierarchical_copy | 2 replicas on gpu:0 | 4 MiB  | 4.000 ms "));
  EXPECT_THAT(text.str(), HasSubstr("| nccl              | 2 replicas on gpu:0 | 4 MiB  | 2.000 ms "));
  EXPECT_THAT(text.str(), HasSubstr("| 2.000                  | 2.000 to 2.000 |"));
  EXPECT_THAT(text.str(), HasSubstr("not measured: nobody has one"));
}

TEST(Report, HasTheCrossDeviceOpsInJson) {
  const auto ops = nlohmann::json::parse(report_of_ops().json())["ops"];
  ASSERT_EQ(ops.size(), 3);
  EXPECT_EQ(ops[0]["op"], "hierarchical_copy");
  EXPECT_EQ(ops[0]["bytes"], 4 << 20);
  EXPECT_EQ(ops[0]["seconds_median"], 0.004);
  EXPECT_FALSE(ops[0].contains("ratio"));
  EXPECT_FALSE(ops[0].contains("pair_ratios"));
  EXPECT_EQ(ops[1]["seconds_median"], 0.002);
  EXPECT_EQ(ops[1]["against"], "hierarchical_copy");
  EXPECT_EQ(ops[1]["ratio"], 2);
  EXPECT_EQ(ops[1]["ratio_interval_95"], (std::vector<double>{2, 2}));
  EXPECT_EQ(ops[2]["op"], "ring");
  EXPECT_EQ(ops[2]["not_measured"], "nobody has one");
  EXPECT_FALSE(ops[2].contains("seconds_median"));
}

TEST(Report, HasProfilesAndWhatWasNotMeasured) {
  Report report;
  report.add_profile("ours", 8, {12500, 0.025, 40, 0.75});
  report.add_profile("without input", 8, {12500, 0.025, 40, std::nullopt});
  report.add_not_measured("images", "no --images");
  const auto json = nlohmann::json::parse(report.json());
  ASSERT_EQ(json["profiles"].size(), 2);
  EXPECT_EQ(json["profiles"][0]["program"], "ours");
  EXPECT_EQ(json["profiles"][0]["steps"], 8);
  EXPECT_EQ(json["profiles"][0]["microseconds"], 12500);
  EXPECT_EQ(json["profiles"][0]["idle_share"], 0.025);
  EXPECT_EQ(json["profiles"][0]["longest_idle_microseconds"], 40);
  EXPECT_EQ(json["profiles"][0]["copy_overlap_share"], 0.75);
  EXPECT_TRUE(json["profiles"][1]["copy_overlap_share"].is_null());
  ASSERT_EQ(json["not_measured"].size(), 1);
  EXPECT_EQ(json["not_measured"][0]["part"], "images");
  EXPECT_EQ(json["not_measured"][0]["reason"], "no --images");
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(), HasSubstr("| 8     | 12.5 ms | 2.50 %        | 40.0 us         | 75.00 % "));
  EXPECT_THAT(text.str(), HasSubstr("| no copies "));
  EXPECT_THAT(text.str(), HasSubstr("images: not measured: no --images"));
}

}  // namespace
}  // namespace lockstep::benchmarks
