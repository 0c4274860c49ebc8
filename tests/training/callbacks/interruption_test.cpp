#include "lockstep/training/callbacks/interruption.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace lockstep {
namespace {

class Interruption : public ::testing::TestWithParam<int> {};

TEST_P(Interruption, IsRememberedAndDoesNotEndTheProcess) {
  const InterruptionGuard guard;
  EXPECT_EQ(guard.signal(), 0);
  ASSERT_EQ(raise(GetParam()), 0);
  EXPECT_EQ(guard.signal(), GetParam());
}

TEST_P(Interruption, EndsTheProcessTheSecondTime) {
  const auto interrupt_twice = [] {
    const InterruptionGuard guard;
    raise(GetParam());
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    raise(GetParam());
  };
  EXPECT_EXIT(interrupt_twice(), ::testing::ExitedWithCode(128 + GetParam()), "");
}

TEST_P(Interruption, EndsTheProcessByTheOtherSignalAtOnce) {
  const int other = GetParam() == SIGINT ? SIGTERM : SIGINT;
  const auto interrupt_twice = [&] {
    const InterruptionGuard guard;
    raise(GetParam());
    raise(other);
  };
  EXPECT_EXIT(interrupt_twice(), ::testing::ExitedWithCode(128 + other), "");
}

TEST_P(Interruption, TheSameSignalTwiceAtOnceIsOne) {
  const InterruptionGuard guard;
  raise(GetParam());
  raise(GetParam());
  EXPECT_EQ(guard.signal(), GetParam());
}

TEST_P(Interruption, EndsTheProcessBeforeTheFirstStepAndIsRememberedAfterwards) {
  const auto interrupt = [](bool has_begun) {
    InterruptionGuard guard(/*from_first_step=*/true);
    if (has_begun) guard.begin_steps();
    raise(GetParam());
    _exit(guard.signal() == GetParam() ? 0 : 1);
  };
  EXPECT_EXIT(interrupt(false), ::testing::ExitedWithCode(128 + GetParam()), "");
  EXPECT_EXIT(interrupt(true), ::testing::ExitedWithCode(0), "");
}

TEST_P(Interruption, IsTheSystemsAgainAfterwards) {
  const auto interrupt = [] {
    { const InterruptionGuard guard; }
    raise(GetParam());
  };
  EXPECT_EXIT(interrupt(), ::testing::KilledBySignal(GetParam()), "");
}

INSTANTIATE_TEST_SUITE_P(Signals, Interruption, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) { return info.param == SIGINT ? "SIGINT" : "SIGTERM"; });

}  // namespace
}  // namespace lockstep
