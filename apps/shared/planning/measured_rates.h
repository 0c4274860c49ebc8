#pragma once

#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::apps {

/// Fills in what is 0 in `cluster`: rates of this machine's CPU, as each of its devices has them while all of
/// them work. Takes about a second, in which the machine should do nothing else. Replicas are threads, so
/// that their messages are copies in memory: a byte that is sent is read, written, and read and written once
/// more to be added.
void measure_rates(PlannedNumbers numbers, PlannedCluster& cluster);

/// Returns the bytes of memory that this machine has left.
double memory_of_machine();

}  // namespace lockstep::apps
