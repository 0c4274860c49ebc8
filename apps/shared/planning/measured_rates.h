#pragma once

#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::apps {

/// Fills in what is 0 in `cluster`: rates of this machine's CPU, as each of its devices has them while all of
/// them work, and the latency and bandwidth of sums between replicas, which are threads. Takes about two
/// seconds, in which the machine should do nothing else.
void measure_rates(PlannedNumbers numbers, PlannedCluster& cluster);

/// Returns the bytes of memory that this machine has left.
double memory_of_machine();

}  // namespace lockstep::apps
