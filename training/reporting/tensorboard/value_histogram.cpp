#include "lockstep/training/reporting/tensorboard/value_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

template <typename T>
ValueHistogram count_values(std::span<const T> values, int64_t num_bins) {
  if (num_bins < 1) {
    throw InvalidArgument("[make_histogram] expected at least one bin, but got " + std::to_string(num_bins));
  }
  double smallest = std::numeric_limits<double>::infinity();
  double largest = -smallest;
  int64_t num_finite = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++num_finite;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  ValueHistogram histogram{.num_not_finite = static_cast<int64_t>(values.size()) - num_finite};
  if (num_finite == 0) return histogram;
  if (smallest == largest) {
    histogram.bins = {{.left = smallest, .right = largest, .count = num_finite}};
    return histogram;
  }

  // Halves the values, because the distance between the ends of the range of doubles overflows.
  const double half_width = (largest / 2 - smallest / 2) / static_cast<double>(num_bins);
  const auto edge = [&](int64_t bin) {
    const double half_distance = half_width * static_cast<double>(bin);
    return bin == num_bins ? largest : smallest + half_distance + half_distance;
  };
  auto& bins = histogram.bins;
  for (int64_t bin = 0; bin < num_bins; ++bin) bins.push_back({.left = edge(bin), .right = edge(bin + 1)});
  const size_t last = bins.size() - 1;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    // Rounding turns a distance below the smallest positive number into a width of 0.
    const double place = half_width > 0 ? (value / 2 - smallest / 2) / half_width : 0;
    size_t bin = std::min(static_cast<size_t>(place), last);
    // `place` is rounded, so the edges decide.
    while (bin > 0 && value < bins[bin].left) --bin;
    while (bin < last && value >= bins[bin].right) ++bin;
    ++bins[bin].count;
  }
  return histogram;
}

}  // namespace

ValueHistogram make_histogram(std::span<const float> values, int64_t num_bins) {
  return count_values(values, num_bins);
}

ValueHistogram make_histogram(std::span<const double> values, int64_t num_bins) {
  return count_values(values, num_bins);
}

}  // namespace lockstep
