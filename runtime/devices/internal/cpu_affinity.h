#pragma once

#include <vector>

namespace lockstep {

/// Numbers of CPUs, in ascending order.
using Cpus = std::vector<int>;

/// Returns the CPUs that the calling thread may use. Empty if the system does not tell.
Cpus cpus_of_this_thread();

/// Restricts the calling thread, and the threads that it starts from now on, to those of `cpus` that it may
/// use already. Leaves it as it is if it may use none of them, or if the system refuses.
void restrict_this_thread(const Cpus& cpus);

/// Returns the CPUs that each replica is to keep to, or none if it is to use any. `near` has those nearest to
/// each replica's device. A replica keeps to them if those of them that are `allowed` are enough for all
/// replicas near any of them, each with `threads` threads: fewer CPUs than threads would slow operators down
/// more than memory of another node does.
std::vector<Cpus> cpus_to_keep_to(const std::vector<Cpus>& near, const Cpus& allowed, int threads);

}  // namespace lockstep
