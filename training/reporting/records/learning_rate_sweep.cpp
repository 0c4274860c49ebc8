#include "lockstep/training/reporting/records/learning_rate_sweep.h"

#include <cmath>

namespace lockstep {

std::optional<double> steepest_learning_rate(const LearningRateSweep& sweep, const SteepestOptions& options) {
  const auto& losses = sweep.smoothed_losses;
  if (losses.size() < options.skip_begin + options.skip_end + 3) return std::nullopt;
  const size_t end = losses.size() - options.skip_end;
  std::optional<double> steepest;
  double least_slope = 0;
  // The rates have equal ratios, so equal distances on a logarithmic axis.
  for (size_t i = options.skip_begin + 1; i + 1 < end; ++i) {
    const double slope = (losses[i + 1] - losses[i - 1]) / 2;
    if (!std::isfinite(slope) || slope >= least_slope) continue;
    least_slope = slope;
    steepest = sweep.learning_rates[i];
  }
  return steepest;
}

}  // namespace lockstep
