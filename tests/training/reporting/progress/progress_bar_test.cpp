#include "lockstep/training/reporting/progress/progress_bar.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Logs numbers(const std::vector<Logs::Entry>& entries) {
  Logs logs;
  for (const auto& [name, value] : entries) logs.set(name, value);
  return logs;
}

Progress halfway() {
  return {.label = "epoch 1/5",
          .step = 469,
          .steps = 938,
          .seconds = 30,
          .examples = 12345,
          .values = numbers({{"loss", 0.12341}, {"accuracy", 0.96119}}),
          .unit = "images"};
}

TEST(ProgressBar, ShowsTimesRateLossAndAccuracy) {
  EXPECT_EQ(
      render_bar(halfway(), {.width = 200, .unicode = false}),
      "epoch 1/5   50%|####################                    | 469/938 [00:30<00:30, 412 images/s, loss "
      "0.1234, accuracy 0.9612]");
}

TEST(ProgressBar, FillsEighthsOfAColumnWithBlockCharacters) {
  EXPECT_EQ(render_bar({.label = "epoch 1/1", .step = 5, .steps = 16, .seconds = 5, .examples = 10},
                       {.width = 63, .unicode = true}),
            "epoch 1/1   31%|███▊        | 5/16 [00:05<00:11, 2 examples/s]");
}

TEST(ProgressBar, LeavesOutWhatDoesNotFitFromTheRight) {
  EXPECT_EQ(render_bar(halfway(), {.width = 80, .unicode = false}),
            "epoch 1/5   50%|######       | 469/938 [00:30<00:30, 412 images/s, loss 0.1234]");
  EXPECT_EQ(render_bar(halfway(), {.width = 60, .unicode = false}),
            "epoch 1/5   50%|###   | 469/938 [00:30<00:30, 412 images/s]");
  EXPECT_EQ(render_bar(halfway(), {.width = 35, .unicode = false}), "epoch 1/5   50%|####     | 469/938");
  EXPECT_EQ(render_bar(halfway(), {.width = 20, .unicode = false}), "epoch 1/5   50%  46");
}

TEST(ProgressBar, FitsAnyWidthWithAColumnToSpare) {
  for (int width = 0; width <= 200; ++width) {
    const std::string text = render_bar(halfway(), {.width = width, .unicode = false});
    EXPECT_LE(static_cast<int>(text.size()), std::max(width - 1, 0)) << width;
  }
}

TEST(ProgressBar, ColoursTheBarAlone) {
  EXPECT_EQ(render_bar({.label = "epoch 1/1", .step = 1, .steps = 2},
                       {.width = 32, .unicode = false, .color = true}),
            "epoch 1/1   50%|\033[36m#####     \033[0m| 1/2");
}

TEST(ProgressBar, KnowsNoTimeLeftBeforeTheFirstStep) {
  EXPECT_EQ(render_bar({.label = "epoch 1/1", .step = 0, .steps = 4}, {.width = 62, .unicode = false}),
            "epoch 1/1    0%|            | 0/4 [00:00<--:--, 0 examples/s]");
}

TEST(ProgressBar, CountsStepsWhereTheirNumberIsNotKnown) {
  EXPECT_EQ(render_bar({.label = "epoch 1/1", .step = 7, .seconds = 1, .examples = 7},
                       {.width = 62, .unicode = false}),
            "epoch 1/1    0%|              | 7 [00:01<--:--, 7 examples/s]");
}

TEST(ProgressLine, SaysTheSameForALog) {
  EXPECT_EQ(render_line(halfway()),
            "epoch 1/5  step 469/938  loss 0.1234  accuracy 0.9612  412 images/s  00:30 left");
  EXPECT_EQ(render_line({.label = "epoch 1/5 test", .step = 1, .steps = 4, .seconds = 1, .examples = 64}),
            "epoch 1/5 test  step 1/4  64 examples/s  00:03 left");
}

}  // namespace
}  // namespace lockstep
