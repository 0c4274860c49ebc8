#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// How many values lie in [left, right); in the last bin also those at `right`.
struct HistogramBin {
  double left = 0;
  double right = 0;
  int64_t count = 0;
};

/// Counts values in bins.
struct ValueHistogram {
  std::vector<HistogramBin> bins;
  int64_t num_not_finite = 0;  ///< NaN and infinite values, which are in no bin
};

/// `num_bins` bins of equal width from the smallest finite value to the largest. Where these are equal there
/// is one bin without width, and none where there is no finite value. Throws InvalidArgument for fewer than
/// one bin.
ValueHistogram make_histogram(std::span<const float> values, int64_t num_bins = 30);
ValueHistogram make_histogram(std::span<const double> values, int64_t num_bins = 30);

}  // namespace lockstep
