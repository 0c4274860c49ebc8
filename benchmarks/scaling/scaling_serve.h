#pragma once

#include "lockstep/benchmarks/scaling/scaling_options.h"

namespace lockstep::benchmarks {

/// Is the job `options.serve` until its input ends. Each job first prints a line that begins with `ready`,
/// and then answers each line that it reads with one line of numbers:
///
/// compute, whose `ready` is followed by the numbers of parameters and of their tensors: steps and images a
/// step, with the seconds of forward, backward, optimizer, and copying to buckets, then of each step, then
/// each gradient's bytes and seconds until it is ready. exchanges: bytes and repetitions, with the seconds
/// and processor seconds of one exchange; `convert` before them, with the seconds of compressing and
/// decompressing. It starts the others, each an `exchange`. workers: steps, with their seconds, as
/// speed_benchmark's. It starts the others, each a `worker`.
void serve_scaling_job(const ScalingOptions& options);

}  // namespace lockstep::benchmarks
