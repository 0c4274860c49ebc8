#include "lockstep/benchmarks/alternating_pairs.h"

#include <fmt/format.h>

#include <ostream>

namespace lockstep::benchmarks {

std::vector<double> AlternatingPairs::ratios() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < first.size(); ++i) ratios.push_back(first[i] / second[i]);
  return ratios;
}

AlternatingPairs measure_alternating_pairs(int count, const Measure& first, const Measure& second,
                                           std::ostream* progress) {
  AlternatingPairs pairs;
  for (int i = 0; i < count; ++i) {
    if (i % 2 == 0) pairs.first.push_back(first());
    pairs.second.push_back(second());
    if (i % 2 == 1) pairs.first.push_back(first());
    if (progress != nullptr) {
      *progress << fmt::format("    pair {} of {}: ratio {:.3f}\n", i + 1, count,
                               pairs.first.back() / pairs.second.back())
                << std::flush;
    }
  }
  return pairs;
}

}  // namespace lockstep::benchmarks
