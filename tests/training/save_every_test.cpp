#include "lockstep/training/save_every.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(SaveEveryTest, ReadsWhatItWrites) {
  EXPECT_EQ(SaveEvery::parse("epoch"), SaveEvery::epochs(1));
  EXPECT_EQ(SaveEvery::parse("3 epochs"), SaveEvery::epochs(3));
  EXPECT_EQ(SaveEvery::parse("100steps"), SaveEvery::steps(100));
  EXPECT_EQ(SaveEvery::parse("1 step"), SaveEvery::steps(1));
  EXPECT_EQ(SaveEvery::parse("2.5 minutes"), SaveEvery::minutes(2.5));
  for (const auto& every : {SaveEvery::epochs(1), SaveEvery::epochs(12), SaveEvery::steps(1000000),
                            SaveEvery::minutes(0.1), SaveEvery::minutes(90)})
    EXPECT_EQ(SaveEvery::parse(every.str()), every) << every.str();
}

TEST(SaveEveryTest, RefusesAnythingElse) {
  for (const std::string text :
       {"", "epochss", "0 steps", "-1 steps", "1.5 steps", "nan minutes", "inf epochs", "1e16 steps", "5",
        "5 hours", "steps 5", "5  steps", "1e400 steps", "1e-400 minutes", "0 minutes"}) {
    EXPECT_THAT([&] { SaveEvery::parse(text); }, ThrowsMessage<InvalidArgument>(HasSubstr("'" + text + "'")))
        << text;
  }
}

}  // namespace
}  // namespace lockstep
