#pragma once

#include "lockstep/benchmarks/benchmark_options.h"

namespace lockstep::benchmarks {

/// Is the job `options.serve` until its input ends: see RemoteTraining for what a job does.
void serve(const BenchmarkOptions& options);

}  // namespace lockstep::benchmarks
