#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::apps {

/// Counts of finite numbers in at most 64 bins of equal width, which is a power of two and doubles when
/// numbers beyond the bins are added. The bins depend on the numbers alone, not on their order or on how they
/// were spread over the bins that were merged. Not thread-safe.
///
/// Example:
///
///     NumberBins bins;
///     bins.add(std::vector<double>{0.5, 1.5, 100});
///     std::cout << bins.counts().size() << " bins of " << bins.width() << " from " << bins.low() << '\n';
class NumberBins {
 public:
  /// With `is_whole`, bins are at least 1 wide.
  explicit NumberBins(bool is_whole = false) : is_whole_(is_whole) {}

  void add(std::span<const double> numbers);
  void merge(const NumberBins& other);

  bool is_empty() const { return counts_.empty(); }
  /// Returns the lower end of a bin, which includes it. The upper end is that of the next bin.
  double low(size_t bin = 0) const;
  double width() const;
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  int exponent_for(double least, double most) const;
  void widen(int exponent);
  void include(int64_t first, int64_t last);

  bool is_whole_;
  int exponent_ = 0;
  int64_t first_ = 0;  // number of the first bin: it begins at first_ times the width
  std::vector<int64_t> counts_;
};

}  // namespace lockstep::apps
