#pragma once

#include <cstdint>

namespace lockstep::benchmarks {

struct PlanningOptions {
  int64_t first = 1;       ///< number of the first random training
  int64_t trainings = 60;  ///< how many of them
};

/// Throws std::invalid_argument naming the flag.
PlanningOptions parse_planning(int argc, char** argv);

}  // namespace lockstep::benchmarks
