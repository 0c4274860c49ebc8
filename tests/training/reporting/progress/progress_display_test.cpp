#include "lockstep/training/reporting/progress/progress_display.h"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep {
namespace {

const Progress kProgress{.label = "epoch 1/2", .step = 1, .steps = 2, .seconds = 1, .examples = 8};

/// A display on a clock that the test moves.
struct Screen {
  explicit Screen(bool bar)
      : display(text, {.bar = bar, .width = [] { return 64; }, .clock = [this] { return now; }}) {}
  double now = 100;
  std::ostringstream text;
  ProgressDisplay display;
};

TEST(ProgressDisplay, DrawsTheBarAFewTimesASecond) {
  Screen screen(true);
  EXPECT_FALSE(screen.display.is_due());
  screen.now += 0.25;
  EXPECT_TRUE(screen.display.is_due());
  screen.display.show(kProgress);
  EXPECT_FALSE(screen.display.is_due());
  screen.now += 0.25;
  EXPECT_TRUE(screen.display.is_due());
}

TEST(ProgressDisplay, DrawsOverTheSameLineAndTakesTheBarAway) {
  Screen screen(true);
  screen.display.show(kProgress);
  EXPECT_EQ(screen.text.str(), "\repoch 1/2   50%|#######       | 1/2 [00:01<00:01, 8 examples/s]\033[K");
  screen.display.clear();
  EXPECT_TRUE(screen.text.str().ends_with("\033[K\r\033[K"));
  const auto size = screen.text.str().size();
  screen.display.clear();
  EXPECT_EQ(screen.text.str().size(), size) << "there was nothing to take away";
}

TEST(ProgressDisplay, WritesPlainLinesWhereThereIsNoTerminal) {
  Screen screen(false);
  screen.now += 29;
  EXPECT_FALSE(screen.display.is_due());
  screen.now += 1;
  EXPECT_TRUE(screen.display.is_due());
  screen.display.show(kProgress);
  screen.display.clear();
  EXPECT_EQ(screen.text.str(), "epoch 1/2  step 1/2  8 examples/s  00:01 left\n");
}

TEST(ProgressDisplay, WaitsAnewAfterAnotherLineWasPrinted) {
  Screen screen(false);
  screen.now += 29;
  screen.display.clear();
  screen.now += 29;
  EXPECT_FALSE(screen.display.is_due());
}

}  // namespace
}  // namespace lockstep
