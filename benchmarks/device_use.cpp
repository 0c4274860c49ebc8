#include "lockstep/benchmarks/device_use.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

using Intervals = std::vector<TimeInterval>;

/// Returns the intervals in order, without overlap.
Intervals merge(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const TimeInterval& a, const TimeInterval& b) { return a.begin < b.begin; });
  Intervals merged;
  for (const auto& interval : intervals) {
    if (interval.end < interval.begin)
      throw std::invalid_argument("[device_use] expected intervals that end after they begin");
    if (merged.empty() || interval.begin > merged.back().end) {
      merged.push_back(interval);
    } else {
      merged.back().end = std::max(merged.back().end, interval.end);
    }
  }
  return merged;
}

double total(const Intervals& merged) {
  double sum = 0;
  for (const auto& interval : merged) sum += interval.end - interval.begin;
  return sum;
}

/// Both must be merged.
double overlap(const Intervals& first, const Intervals& second) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < first.size() && j < second.size();) {
    sum += std::max(0.0, std::min(first[i].end, second[j].end) - std::max(first[i].begin, second[j].begin));
    if (first[i].end < second[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

}  // namespace

DeviceUse measure_device_use(const DeviceActivity& activity) {
  const Intervals kernels = merge(activity.kernels);
  const Intervals copies = merge(activity.copies_from_host);
  DeviceUse use;
  if (!kernels.empty()) use.microseconds = kernels.back().end - kernels.front().begin;
  if (use.microseconds <= 0)
    throw std::invalid_argument("[device_use] expected kernels that take time, but got none");
  use.idle_share = 1 - total(kernels) / use.microseconds;
  for (size_t i = 1; i < kernels.size(); ++i) {
    use.longest_idle_microseconds =
        std::max(use.longest_idle_microseconds, kernels[i].begin - kernels[i - 1].end);
  }
  if (total(copies) > 0) use.copy_overlap_share = overlap(copies, kernels) / total(copies);
  return use;
}

}  // namespace lockstep::benchmarks
