#include "lockstep/strategies/input/replica_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace lockstep {

std::vector<int64_t> cut_equally(int64_t n, int count) {
  const int64_t piece = (n + count - 1) / count;
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i <= count; ++i) bounds.push_back(std::min(n, i * piece));
  return bounds;
}

std::vector<int64_t> cut_by_weights(int64_t n, const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> bounds{0};
  double before = 0;
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    before += weights[i];
    bounds.push_back(std::min<int64_t>(n, std::llround(static_cast<double>(n) * (before / total))));
  }
  bounds.push_back(n);  // whatever the sum rounds to
  return bounds;
}

}  // namespace lockstep
