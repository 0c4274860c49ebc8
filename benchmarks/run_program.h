#pragma once

#include <functional>

namespace lockstep::benchmarks {

/// What a benchmark's main() returns: what `run` does, 1 where it throws std::runtime_error, 2 where it
/// throws anything else, which is a flag's; the error is on standard error then.
int run_program(const std::function<int()>& run);

}  // namespace lockstep::benchmarks
