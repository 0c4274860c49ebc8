#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// Losses at rising learning rates, from find_learning_rate(). All vectors have an entry for each step.
struct LearningRateSweep {
  std::vector<double> learning_rates;  ///< in ascending order, with equal ratios
  std::vector<double> losses;          ///< mean loss of each step, before its update
  std::vector<double> smoothed_losses;
  bool has_diverged = false;  ///< whether the sweep ended early because the loss had grown too large
  /// Learning rate at which the smoothed loss falls fastest; none if it never falls. See
  /// steepest_learning_rate().
  std::optional<double> suggestion{};
};

struct SteepestOptions {
  size_t skip_begin = 10;  ///< first steps to leave out, whose smoothed loss says little
  size_t skip_end = 5;     ///< last steps to leave out, where the loss diverges
};

/// Returns the learning rate at which the smoothed loss falls fastest against the logarithm of the rate, by
/// central differences. Returns nothing if it falls nowhere, or if fewer than three steps are left.
std::optional<double> steepest_learning_rate(const LearningRateSweep& sweep,
                                             const SteepestOptions& options = {});

}  // namespace lockstep
