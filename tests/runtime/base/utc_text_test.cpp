#include "lockstep/runtime/base/internal/utc_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

// The expected texts are from GNU date: date -u -d @1709210096.
TEST(UtcTextTest, FormatsTimesInUtcWhateverTheTimeZone) {
  const system_clock::time_point leap_day{seconds(1709210096)};
  EXPECT_EQ(utc_text(leap_day, "%Y-%m-%d %H:%M:%S UTC"), "2024-02-29 12:34:56 UTC");
  EXPECT_EQ(utc_text(system_clock::time_point{}, "%Y-%m-%dT%H:%M:%SZ"), "1970-01-01T00:00:00Z");
}

}  // namespace
}  // namespace lockstep
