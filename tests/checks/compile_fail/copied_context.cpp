// A context belongs to one replica and one run: a copy could outlive both.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void copy_context(MirroredStrategy& strategy) {
  strategy.run([](ReplicaContext& replica) {
    ReplicaContext& same = replica;
    same.replica_id();
#ifdef LOCKSTEP_MUST_NOT_COMPILE
    ReplicaContext copy = replica;
    copy.replica_id();
#endif
  });
}
