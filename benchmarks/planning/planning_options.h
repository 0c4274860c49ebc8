#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::benchmarks {

struct PlanningOptions {
  int64_t first = 1;       ///< number of the first random training
  int64_t trainings = 60;  ///< how many of them
  /// Number of the training of which this process is a worker; see mean_of_workers().
  std::optional<int64_t> worker_of{};
};

/// Throws std::invalid_argument naming the flag.
PlanningOptions parse_planning(int argc, char** argv);

}  // namespace lockstep::benchmarks
