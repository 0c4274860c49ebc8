#pragma once

#include <functional>

namespace lockstep::benchmarks {

/// Calls `run` and returns the exit code for a benchmark's main(): that of `run`, 1 if it throws
/// std::runtime_error, or 2 if it throws anything else, which is about a flag. Prints the error to standard
/// error.
int run_program(const std::function<int()>& run);

}  // namespace lockstep::benchmarks
