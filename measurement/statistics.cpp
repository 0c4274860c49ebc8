#include "lockstep/measurement/statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace lockstep::measurement {
namespace {

double median_of_sorted(const std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("[median] expected at least one value, but got none");
  std::sort(values.begin(), values.end());
  return median_of_sorted(values);
}

int median_interval_rank(int count, double confidence) {
  double probability = std::pow(0.5, count);  // P(B = rank)
  double tail = probability;                  // P(B <= rank)
  int rank = 0;
  while (rank < count && 1 - 2 * tail >= confidence) {
    ++rank;
    probability *= static_cast<double>(count - rank + 1) / rank;
    tail += probability;
  }
  if (rank == 0) {
    throw std::invalid_argument("[median] expected enough values for an interval of " +
                                std::to_string(confidence) + ", but got " + std::to_string(count));
  }
  return rank;
}

MedianInterval median_with_interval(std::vector<double> values) {
  const auto rank = static_cast<size_t>(median_interval_rank(static_cast<int>(values.size()), 0.95));
  std::sort(values.begin(), values.end());
  return {median_of_sorted(values), values[rank - 1], values[values.size() - rank]};
}

}  // namespace lockstep::measurement
