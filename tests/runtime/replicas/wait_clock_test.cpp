#include "lockstep/runtime/replicas/wait_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kNap{30};

TEST(WaitClock, AddsUpWhatWasWaited) {
  WaitClock clock;
  EXPECT_EQ(clock.seconds(), 0);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {
    const WaitClock::Wait wait(clock);
    std::this_thread::sleep_for(kNap);
  }
  const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(clock.seconds(), 0.06);
  EXPECT_LE(clock.seconds(), gone.count());
}

TEST(WaitClock, CountsNothingBetweenWaits) {
  WaitClock clock;
  { const WaitClock::Wait wait(clock); }
  std::this_thread::sleep_for(kNap);
  { const WaitClock::Wait wait(clock); }
  EXPECT_LT(clock.seconds(), 0.03);
}

TEST(WaitClock, CountsAWaitInsideAnotherOnce) {
  WaitClock clock;
  const auto begin = std::chrono::steady_clock::now();
  {
    const WaitClock::Wait outer(clock);
    {
      const WaitClock::Wait inner(clock);
      std::this_thread::sleep_for(kNap);
    }
    EXPECT_EQ(clock.seconds(), 0) << "the wait has not ended";
  }
  const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(clock.seconds(), 0.03);
  EXPECT_LE(clock.seconds(), gone.count());
}

TEST(WaitClock, CountsAWaitThatEndsByAnError) {
  WaitClock clock;
  try {
    const WaitClock::Wait wait(clock);
    std::this_thread::sleep_for(kNap);
    throw 1;
  } catch (int) {
  }
  EXPECT_GE(clock.seconds(), 0.03);
}

}  // namespace
}  // namespace lockstep
