#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// How the numbers of an axis are written.
enum class AxisNumbers {
  kPlain,        ///< 0.5, 12 000, 2e-5
  kPercent,      ///< for shares between 0 and 1
  kWhole,        ///< for counts, such as epochs: no fractions
  kPowersOfTen,  ///< for values that are decimal logarithms: 1e-5 at -5
};

struct AxisTick {
  double value = 0;
  std::string label;
};

/// The visible part of an axis.
struct PlotAxis {
  double low = 0;
  double high = 1;
  std::vector<AxisTick> ticks;  ///< at round values, in ascending order
};

struct AxisOptions {
  AxisNumbers numbers = AxisNumbers::kPlain;
  int64_t max_ticks = 6;
  /// Whether the ends are ticks. Otherwise they are the ends of the values.
  bool ends_at_ticks = true;
};

/// Returns an axis for values from `low` to `high`, which must be finite; widens the range if they are equal.
/// Ticks are multiples of 1, 2 or 5 times a power of ten; there are at least two.
PlotAxis make_axis(double low, double high, const AxisOptions& options);

}  // namespace lockstep
