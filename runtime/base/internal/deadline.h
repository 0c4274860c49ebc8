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

}  // namespace lockstep
