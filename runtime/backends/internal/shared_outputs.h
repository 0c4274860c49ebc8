#pragma once

#include "lockstep/runtime/collectives/replica_rendezvous.h"

namespace lockstep {

/// Wraps the work of an all-gather for arrivals that have a `shared_output`: allocates it once for all of
/// them, as one tensor that has the parts of all ranks along its first dimension, and divides among the
/// arrivals what is to be filled. Their outputs are only examples of the parts until then. Each fills its own
/// part; those of other processes go round. `first_rank` is the number of the first arrival's rank.
ReplicaRendezvous::MakeWork with_shared_outputs(ReplicaRendezvous::MakeWork gathering, int first_rank);

}  // namespace lockstep
