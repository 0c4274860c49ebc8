#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

/// Returns the time `timeout` from now, or a year from now if that is earlier: a deadline that is far enough
/// away would overflow the clock.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::hours kLongest{24 * 365};
  return std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, kLongest);
}

/// Returns the milliseconds until a deadline for poll(): 0 once it has passed, and 10 minutes at most, which
/// poll()'s int holds.
inline int poll_timeout(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  constexpr milliseconds kLongest = std::chrono::minutes(10);
  if (deadline >= now + kLongest) return static_cast<int>(kLongest.count());
  return static_cast<int>(std::max(std::chrono::ceil<milliseconds>(deadline - now), milliseconds(0)).count());
}

}  // namespace lockstep
