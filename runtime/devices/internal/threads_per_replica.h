#pragma once

namespace lockstep {

/// Returns how many threads each replica's operators use by default, if `num_replicas` replicas share this
/// machine's cores: the number in OMP_NUM_THREADS, else the cores divided by the replicas, and at least 1.
///
/// Ignores OMP_NUM_THREADS if it is not a positive number, and a 1 under torchrun, which sets it for each of
/// several processes if the user has not.
int threads_per_replica(int num_replicas);

/// Returns whether OMP_NUM_THREADS decides it.
bool is_openmp_limited();

}  // namespace lockstep
