#include "lockstep/benchmarks/bar.h"

#include <fmt/format.h>

namespace lockstep::benchmarks {

bool Bar::is_met(const MedianInterval& ratio) const {
  constexpr double kSlack = 0.02;
  if (side == Side::kAtLeast) return ratio.upper >= value && ratio.median >= value - kSlack;
  return ratio.lower <= value && ratio.median <= value + kSlack;
}

std::string Bar::str() const {
  return fmt::format("{} {:.2f}", side == Side::kAtLeast ? ">=" : "<=", value);
}

}  // namespace lockstep::benchmarks
