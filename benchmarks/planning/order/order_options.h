#pragma once

#include <cstdint>

namespace lockstep::benchmarks {

struct OrderOptions {
  int64_t first = 1;    ///< number of the first case
  int64_t cases = 20;   ///< how many of them
  int64_t layouts = 8;  ///< that are measured of each, at most
  int64_t steps = 5;    ///< of each layout, after two first ones
  bool only_plans = false;
};

/// Throws std::invalid_argument naming the flag.
OrderOptions parse_order(int argc, char** argv);

}  // namespace lockstep::benchmarks
