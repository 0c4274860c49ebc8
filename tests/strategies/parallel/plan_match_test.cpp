// The modules that the lines of a plan name.
#include "lockstep/strategies/parallel/internal/plan_match.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(PlanMatch, AStarMatchesAnythingWithinAName) {
  EXPECT_TRUE(names_module("up", "up"));
  EXPECT_FALSE(names_module("up", "ups"));
  EXPECT_FALSE(names_module("up", "blocks.up"));
  EXPECT_TRUE(names_module("blocks.*.up", "blocks.0.up"));
  EXPECT_TRUE(names_module("blocks.*.up", "blocks.12.up"));
  EXPECT_FALSE(names_module("blocks.*.up", "blocks.0.mlp.up"));
  EXPECT_FALSE(names_module("blocks.*", "blocks.0.up"));
  EXPECT_TRUE(names_module("*.*.u*p", "blocks.0.ump"));
  EXPECT_TRUE(names_module("*.*.u*p", "blocks.0.up"));
  EXPECT_TRUE(names_module("***", "up"));
  EXPECT_TRUE(names_module("*", ""));
  EXPECT_FALSE(names_module("", "up"));
  EXPECT_FALSE(names_module("blocks.", "blocks"));
}

TEST(PlanMatch, ModulesThatDifferInNumbersHaveOnePattern) {
  EXPECT_EQ(pattern_of("blocks.0.up"), "blocks.*.up");
  EXPECT_EQ(pattern_of("blocks.31.heads.2"), "blocks.*.heads.*");
  EXPECT_EQ(pattern_of("norm1.up"), "norm1.up");
  EXPECT_EQ(pattern_of("0"), "*");
  EXPECT_EQ(pattern_of(""), "");
}

}  // namespace
}  // namespace lockstep
