#include "lockstep/training/reporting/progress/internal/duration_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace lockstep {

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds >= 0) || seconds > kLongest) return "--:--";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = total / 86400;
  const int64_t hours = total / 3600 % 24;
  const std::string clock = fmt::format("{:02}:{:02}", total / 60 % 60, total % 60);
  if (days > 0) return fmt::format("{} {} {:02}:{}", days, days == 1 ? "day" : "days", hours, clock);
  return hours > 0 ? fmt::format("{}:{}", hours, clock) : clock;
}

}  // namespace lockstep
