#pragma once

#include <functional>
#include <iosfwd>
#include <vector>

namespace lockstep::benchmarks {

/// One measurement of something: a time or a size.
using Measure = std::function<double()>;

/// Two programs measured in turn, so that what disturbs the machine disturbs both.
struct AlternatingPairs {
  std::vector<double> first;
  std::vector<double> second;

  /// first / second, pair by pair.
  std::vector<double> ratios() const;
};

/// Measures `first` and `second` `count` times. The order changes from pair to pair, so that neither always
/// runs in the other's wake. Prints a line with its ratio after each pair, unless `progress` is null.
AlternatingPairs measure_alternating_pairs(int count, const Measure& first, const Measure& second,
                                           std::ostream* progress = nullptr);

}  // namespace lockstep::benchmarks
