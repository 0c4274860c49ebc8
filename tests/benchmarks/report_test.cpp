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
                   100, Bar{Bar::Side::kAtLeast, 0.98});
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

}  // namespace
}  // namespace lockstep::benchmarks
