#include "lockstep/runtime/base/save_interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(SaveIntervalTest, ReadsWhatItWrites) {
  EXPECT_EQ(SaveInterval::parse("epoch"), SaveInterval::epochs(1));
  EXPECT_EQ(SaveInterval::parse("3 epochs"), SaveInterval::epochs(3));
  EXPECT_EQ(SaveInterval::parse("100steps"), SaveInterval::steps(100));
  EXPECT_EQ(SaveInterval::parse("1 step"), SaveInterval::steps(1));
  EXPECT_EQ(SaveInterval::parse("2.5 minutes"), SaveInterval::minutes(2.5));
  for (const auto& every : {SaveInterval::epochs(1), SaveInterval::epochs(12), SaveInterval::steps(1000000),
                            SaveInterval::minutes(0.1), SaveInterval::minutes(90)})
    EXPECT_EQ(SaveInterval::parse(every.str()), every) << every.str();
}

TEST(SaveIntervalTest, RefusesAnythingElse) {
  for (const std::string text :
       {"", "epochss", "0 steps", "-1 steps", "1.5 steps", "nan minutes", "inf epochs", "1e16 steps", "5",
        "5 hours", "steps 5", "5  steps", "1e400 steps", "1e-400 minutes", "0 minutes"}) {
    EXPECT_THAT([&] { SaveInterval::parse(text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("'" + text + "'")))
        << text;
  }
}

}  // namespace
}  // namespace lockstep
