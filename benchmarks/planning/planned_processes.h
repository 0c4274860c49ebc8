#pragma once

#include <cstdint>

namespace lockstep::benchmarks {

/// Runs this program once for each of `processes` workers of a job on this machine, with the flags
/// `--worker-of NUMBER`, and returns the mean of the numbers that they print. Blocks until they have ended.
/// Throws std::runtime_error if one fails or prints something else.
int64_t mean_of_workers(int64_t number, int64_t processes);

}  // namespace lockstep::benchmarks
