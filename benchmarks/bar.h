#pragma once

#include <string>

#include "lockstep/measurement/statistics.h"

namespace lockstep::benchmarks {

using measurement::MedianInterval;

/// The bar that a ratio is compared with.
struct Bar {
  enum class Side { kAtLeast, kAtMost };
  Side side = Side::kAtLeast;
  double value = 1;

  /// A bar is met where the interval reaches it and the median is no more than 0.02 short of it: the noise of
  /// a machine must neither fail nor excuse a program.
  bool is_met(const MedianInterval& ratio) const;
  /// Such as ">= 0.98".
  std::string str() const;
};

}  // namespace lockstep::benchmarks
