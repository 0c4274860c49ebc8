#include "lockstep/runtime/base/internal/call_with_timeout.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(CallWithTimeout, GivesWhatTheWorkReturns) {
  EXPECT_EQ(call_with_timeout(seconds(60), [] { return std::string("done"); }), "done");
}

TEST(CallWithTimeout, ThrowsWhatTheWorkThrows) {
  EXPECT_THROW(call_with_timeout(seconds(60), []() -> int { throw std::out_of_range("too far"); }),
               std::out_of_range);
}

TEST(CallWithTimeout, LeavesWorkBehindThatDoesNotEnd) {
  std::promise<void> release;
  const auto ended = std::make_shared<std::promise<void>>();
  const auto begin = std::chrono::steady_clock::now();
  const auto result =
      call_with_timeout(milliseconds(20), [released = release.get_future().share(), ended]() -> int {
        released.wait();
        ended->set_value();
        return 1;
      });
  EXPECT_EQ(result, std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  release.set_value();
  EXPECT_EQ(ended->get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(CallWithTimeout, LetsGoOfWhatTheWorkHeld) {
  const auto held = std::make_shared<int>(1);
  call_with_timeout(seconds(60), [held] { return *held; });
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_ANY_THROW(call_with_timeout(seconds(60), [held]() -> int { throw *held; }));
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace lockstep
