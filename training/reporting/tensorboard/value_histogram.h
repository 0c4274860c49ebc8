#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Number of values in [left, right); the last bin also counts values equal to `right`.
struct HistogramBin {
  double left = 0;
  double right = 0;
  int64_t count = 0;
};

/// A histogram of values.
struct ValueHistogram {
  std::vector<HistogramBin> bins;
  int64_t num_not_finite = 0;  ///< NaN and infinite values, which no bin counts
};

/// Counts values in `num_bins` bins of equal width, from the smallest finite value to the largest. If all
/// finite values are equal there is one bin of zero width; if there are none there is no bin. Throws
/// InvalidArgument if `num_bins` is below 1.
ValueHistogram make_histogram(std::span<const float> values, int64_t num_bins = 30);
ValueHistogram make_histogram(std::span<const double> values, int64_t num_bins = 30);

}  // namespace lockstep
