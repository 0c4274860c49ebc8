#pragma once

#include <limits>

namespace lockstep::testing {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace lockstep::testing
