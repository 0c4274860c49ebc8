#include "lockstep/training/reporting/progress/internal/duration_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

TEST(DurationText, ShowsAClock) {
  EXPECT_EQ(duration_text(0), "00:00");
  EXPECT_EQ(duration_text(7.4), "00:07");
  EXPECT_EQ(duration_text(59.6), "01:00");
  EXPECT_EQ(duration_text(12 * 60 + 34), "12:34");
  EXPECT_EQ(duration_text(3600 + 2 * 60 + 3), "1:02:03");
  EXPECT_EQ(duration_text(86400), "1 day 00:00:00");
  EXPECT_EQ(duration_text(2 * 86400 + 3600), "2 days 01:00:00");
}

TEST(DurationText, ShowsDashesForWhatIsNoDuration) {
  EXPECT_EQ(duration_text(-1), "--:--");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "--:--");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "--:--");
}

}  // namespace
}  // namespace lockstep
