#pragma once

#include <vector>

namespace lockstep::measurement {

/// The median of a sample, and an interval that contains the population's median.
struct MedianInterval {
  double median = 0;
  double lower = 0;
  double upper = 0;
};

/// Returns the median. Throws std::invalid_argument if the sample is empty.
double median(std::vector<double> values);

/// Returns the largest rank r, counted from 1, for which [r-th smallest, r-th largest] of `count` values
/// contains the median with a probability of at least `confidence`. Throws std::invalid_argument if even
/// [smallest, largest] does not.
///
/// Each value is below the median with probability 1/2, so the interval misses it with probability 2 P(B <=
/// r - 1), with B binomial of `count` and 1/2, for any distribution (David and Nagaraja, Order Statistics,
/// 3rd edition, 7.1).
int median_interval_rank(int count, double confidence);

/// Returns the sample's median with its 95 % confidence interval, which assumes nothing about the
/// distribution. Throws std::invalid_argument for fewer than 6 values, which have no such interval.
MedianInterval median_with_interval(std::vector<double> values);

}  // namespace lockstep::measurement
