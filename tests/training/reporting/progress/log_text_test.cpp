#include "lockstep/training/reporting/progress/internal/log_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(LogText, NamesAreWordsAndMfuIsItsAbbreviation) {
  EXPECT_EQ(log_title("validation_loss"), "validation loss");
  EXPECT_EQ(log_title("model_flop_utilization"), "MFU");
}

TEST(LogText, SharesArePercentagesAndRatesAreShort) {
  EXPECT_EQ(log_value_text("model_flop_utilization", 0.4567), "45.7 %");
  EXPECT_EQ(log_value_text("data_wait", 0.001), "0.1 %");
  EXPECT_EQ(log_value_text("learning_rate", 0.000123456), "0.000123");
  EXPECT_EQ(log_value_text("loss", 1.23456), "1.2346");
}

}  // namespace
}  // namespace lockstep
