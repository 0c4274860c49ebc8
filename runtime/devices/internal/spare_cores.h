#pragma once

namespace lockstep {

/// Returns how many of this machine's cores each of its replicas has, if `num_replicas` share them equally.
/// Returns 0 if OMP_NUM_THREADS limits each replica's operators, as threads_per_replica() understands it.
double cores_per_replica(int num_replicas);

/// Returns the cores of the replica whose thread calls it. While it waits, others on its machine may compute
/// with them. Returns 0 if the user has set the replicas' number of threads, and in other threads.
double cores_of_this_replica();
/// Sets them for the calling thread.
void set_cores_of_this_replica(double cores);

}  // namespace lockstep
