#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace lockstep {

/// Returns how long to wait before a request to a store is sent again: 0.1 s, twice as long after each retry,
/// and at most 5 s. A random part of it is left out, so that workers that failed together do not come back
/// together.
inline std::chrono::milliseconds retry_delay(int64_t retries_before) {
  constexpr double kFirst = 100;
  constexpr double kLongest = 5000;
  const double longest = std::min(kLongest, std::ldexp(kFirst, static_cast<int>(retries_before)));
  std::random_device random;
  return std::chrono::milliseconds(
      static_cast<int64_t>(std::uniform_real_distribution(longest / 2, longest)(random)));
}

}  // namespace lockstep
