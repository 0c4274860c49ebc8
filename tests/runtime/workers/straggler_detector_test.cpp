#include "lockstep/runtime/workers/straggler_detector.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

std::optional<StragglerDetector::Straggler> first_found(StragglerDetector& watch, milliseconds a,
                                                        milliseconds b, milliseconds c) {
  for (int collective = 0; collective < 1000; ++collective) {
    if (auto found = watch.add({a, b, c})) return found;
  }
  return std::nullopt;
}

TEST(StragglerDetector, NamesTheWorkerThatTakesFiveTimesAsLong) {
  StragglerDetector watch;
  const auto found = first_found(watch, milliseconds(20), milliseconds(100), milliseconds(20));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->worker, 1);
  EXPECT_DOUBLE_EQ(found->times, 5);
}

TEST(StragglerDetector, TellsOnceOnly) {
  StragglerDetector watch;
  EXPECT_TRUE(first_found(watch, milliseconds(100), milliseconds(20), milliseconds(20)));
  EXPECT_FALSE(first_found(watch, milliseconds(100), milliseconds(20), milliseconds(20)));
}

TEST(StragglerDetector, IsSilentAboutWorkersThatDifferLittle) {
  StragglerDetector watch;
  EXPECT_FALSE(first_found(watch, milliseconds(100), milliseconds(60), milliseconds(90)));
}

TEST(StragglerDetector, IsSilentAboutOneLongPause) {
  StragglerDetector watch;
  EXPECT_FALSE(watch.add({std::chrono::seconds(2), milliseconds(1), milliseconds(1)}));
  EXPECT_FALSE(first_found(watch, milliseconds(20), milliseconds(20), milliseconds(20)));
}

TEST(StragglerDetector, ForgetsWhatWasLongAgo) {
  StragglerDetector watch;
  EXPECT_FALSE(first_found(watch, milliseconds(30), milliseconds(20), milliseconds(20)));
  const auto found = first_found(watch, milliseconds(20), milliseconds(20), milliseconds(100));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->worker, 2);
}

TEST(StragglerDetector, HasNothingToTellOfOneWorker) {
  StragglerDetector watch;
  for (int collective = 0; collective < 100; ++collective) EXPECT_FALSE(watch.add({std::chrono::seconds(1)}));
}

}  // namespace
}  // namespace lockstep
