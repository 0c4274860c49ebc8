#include "lockstep/training/reporting/records/logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

TEST(Logs, GiveNumbersByTheirNames) {
  Logs logs;
  logs.set("loss", 0.5);
  logs.set("accuracy", 0.75);
  logs.set("loss", 0.25);
  EXPECT_EQ(logs.at("loss"), 0.25);
  EXPECT_EQ(logs.find("accuracy"), 0.75);
  EXPECT_EQ(logs.begin()->first, "loss");
}

TEST(Logs, NameTheNumbersThatThereAreInPlaceOfAMissingOne) {
  Logs logs;
  EXPECT_THAT([&] { logs.at("loss"); },
              testing::ThrowsMessage<std::out_of_range>(testing::HasSubstr("nothing")));
  logs.set("loss", 0.5);
  logs.set("accuracy", 0.75);
  EXPECT_THAT([&] { logs.at("los"); }, testing::ThrowsMessage<std::out_of_range>(testing::HasSubstr(
                                           "expected one of: loss, accuracy; but got 'los'")));
  EXPECT_FALSE(logs.find("los"));
}

}  // namespace
}  // namespace lockstep
