#include "lockstep/runtime/base/internal/closest_name.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> kNames{"--epochs", "--seed", "--model", "--devices", "--steps-per-epoch"};

TEST(ClosestName, FindsTheNameBehindASlipOfTheFinger) {
  EXPECT_EQ(closest_name("--epoch", kNames), "--epochs");    // a letter left out
  EXPECT_EQ(closest_name("--epochss", kNames), "--epochs");  // one added
  EXPECT_EQ(closest_name("--sead", kNames), "--seed");       // one changed
  EXPECT_EQ(closest_name("--modle", kNames), "--model");     // two swapped
  EXPECT_EQ(closest_name("--DEVICES", kNames), "--devices");
}

TEST(ClosestName, TakesTheBeginningOfALongNameForIt) {
  EXPECT_EQ(closest_name("--steps", kNames), "--steps-per-epoch");
}

TEST(ClosestName, PrefersTheNearestOfSeveral) {
  EXPECT_EQ(closest_name("adamv", {"adam", "adamw"}), "adam");
  EXPECT_EQ(closest_name("adamw", {"adam", "adamw"}), "adamw");
  EXPECT_EQ(closest_name("--step", {"--steps-to-live", "--steps"}), "--steps");
}

TEST(ClosestName, FindsNothingWhereAllAreFarOff) {
  EXPECT_EQ(closest_name("--verbose", kNames), std::nullopt);
  EXPECT_EQ(closest_name("", kNames), std::nullopt);
  EXPECT_EQ(closest_name("anything", {}), std::nullopt);
}

TEST(ClosestName, ReadsAsAQuestion) {
  EXPECT_EQ(did_you_mean("--epoch", kNames), " (did you mean --epochs?)");
  EXPECT_EQ(did_you_mean("--verbose", kNames), "");
}

}  // namespace
}  // namespace lockstep
