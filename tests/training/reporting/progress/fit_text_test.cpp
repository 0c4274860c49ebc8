#include "lockstep/training/reporting/progress/fit_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

Logs logs_of(double loss, double test_accuracy) {
  Logs logs;
  logs.set("loss", loss);
  logs.set("accuracy", 0.96125);
  logs.set("learning_rate", 0.00012345);
  logs.set("examples_per_second", 411.6);
  logs.set("data_wait", 0.01234);
  logs.set("validation_accuracy", test_accuracy);
  return logs;
}

const FitTextOptions kImages{
    .unit = "images",
    .validation = "test",
    .names = {"loss", "accuracy", "validation_accuracy", "nothing", "examples_per_second"}};

TEST(EpochLine, RoundsToFourPlacesAndWholeExamples) {
  EXPECT_EQ(epoch_line(1, 5, logs_of(0.12344, 0.9745), kImages),
            "epoch 1/5  loss 0.1234  accuracy 0.9613  test accuracy 0.9745  412 images/s");
}

TEST(EpochLine, ShowsAllWhereNothingIsChosen) {
  EXPECT_EQ(
      epoch_line(1, 5, logs_of(0.12344, 0.9745)),
      "epoch 1/5  loss 0.1234  accuracy 0.9613  learning rate 0.000123  412 examples/s  data wait 1.2 %  "
      "validation accuracy 0.9745");
}

TEST(FitTable, HasALineForEachEpochAndTheBestBelow) {
  EXPECT_EQ(fit_table(3, {logs_of(0.5, 0.9), logs_of(12.25, 0.95), logs_of(0.1, 0.95)}, kImages),
            "epoch     loss  accuracy  test accuracy  images/s\n"
            "    3   0.5000    0.9613         0.9000       412\n"
            "    4  12.2500    0.9613         0.9500       412\n"
            "    5   0.1000    0.9613         0.9500       412\n"
            "best test accuracy 0.9500 in epoch 4\n");
}

TEST(FitTable, LeavesTheMiddleOfManyEpochsOut) {
  const auto text = fit_table(1, std::vector<Logs>(100, logs_of(0.5, 0.9)), {.names = {"loss"}});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 10 + 1 + 10 + 1);
  EXPECT_THAT(text, ::testing::HasSubstr("   10  0.5000\n  ...     ...\n   91  0.5000\n"));
}

TEST(FitTable, FindsTheBestLossWhereThereIsNoAccuracy) {
  std::vector<Logs> epochs(3);
  epochs[0].set("validation_loss", std::numeric_limits<double>::quiet_NaN());
  epochs[1].set("validation_loss", 0.5);
  EXPECT_EQ(fit_table(1, epochs),
            "epoch  validation loss\n"
            "    1              nan\n"
            "    2           0.5000\n"
            "    3                -\n"
            "best validation loss 0.5000 in epoch 2\n");
  EXPECT_EQ(fit_table(1, {}), "");
}

}  // namespace
}  // namespace lockstep
