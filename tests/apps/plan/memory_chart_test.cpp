#include "lockstep/apps/plan/memory_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/quantity.h"

namespace lockstep::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kGibibyte = 1024.0 * 1024 * 1024;

/// Widths of the parts of one kind, in order.
std::vector<double> widths_of(const std::string& svg, const std::string& style) {
  const std::regex bar("<rect class=\"" + style +
                       "\" x=\"[^\"]*\" y=\"[^\"]*\" width=\"([^\"]*)\" height=\"17\"");
  std::vector<double> widths;
  for (auto found = std::sregex_iterator(svg.begin(), svg.end(), bar); found != std::sregex_iterator();
       ++found)
    widths.push_back(std::stod((*found)[1]));
  return widths;
}

MemoryChart two_stages() {
  return {.title = "Memory of <two> stages",
          .ranks = {{.parameters = 2 * kGibibyte, .activations = 6 * kGibibyte},
                    {.parameters = 2 * kGibibyte, .activations = 3 * kGibibyte}},
          .devices_per_stage = 4,
          .limit = 10 * kGibibyte};
}

TEST(MemoryChart, HasBarsAsLongAsTheMemory) {
  const std::string svg = memory_chart_svg(two_stages());
  const auto parameters = widths_of(svg, "s0");
  const auto activations = widths_of(svg, "s3");
  ASSERT_EQ(parameters.size(), 2U);
  ASSERT_EQ(activations.size(), 2U);
  EXPECT_NEAR(parameters[0], parameters[1], 0.02);
  EXPECT_NEAR(activations[0], 3 * parameters[0], 0.05);
  EXPECT_NEAR(activations[1], 1.5 * parameters[0], 0.05);
  EXPECT_TRUE(widths_of(svg, "s2").empty());  // no state of an optimizer
}

TEST(MemoryChart, NamesStagesPartsAndTheLimit) {
  const std::string svg = memory_chart_svg(two_stages());
  EXPECT_THAT(svg, HasSubstr("stage 0"));
  EXPECT_THAT(svg, HasSubstr("<title>stage 1: activations 3.00 GiB</title>"));
  EXPECT_THAT(svg, HasSubstr("on each of 4 devices"));
  EXPECT_THAT(svg, HasSubstr("class=\"limit\""));
  EXPECT_THAT(svg, HasSubstr("Memory of &lt;two&gt; stages"));
  EXPECT_THAT(svg, Not(HasSubstr("optimizer")));
}

TEST(MemoryChart, WritesSumsBesideTheLineOfTheLimit) {
  const auto place_of = [](const std::string& svg, const std::string& before) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(svg, found, std::regex(before))) << before;
    return std::stod(found[1]);
  };
  MemoryChart chart = two_stages();
  for (const double share : {0.7, 0.93, 0.97, 0.99, 1.0, 1.01, 1.05}) {
    chart.ranks[0].activations = share * chart.limit - chart.ranks[0].parameters;
    const std::string svg = memory_chart_svg(chart);
    const double limit = place_of(svg, "<line class=\"limit\" x1=\"([^\"]*)\"");
    const double text =
        place_of(svg, "x=\"([^\"]*)\"[^>]*>" + gibibytes_text(share * chart.limit) + "</text>");
    EXPECT_TRUE(text > limit + 3 || text + 60 < limit) << share;
  }
}

TEST(MemoryChart, FollowsTheReadersScheme) {
  EXPECT_THAT(memory_chart_svg(two_stages()), HasSubstr("prefers-color-scheme: dark"));
}

}  // namespace
}  // namespace lockstep::apps
