// The replicas call one function at the same time, so mutable state in it would be a race.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void call_mutable_lambda(MirroredStrategy& strategy) {
  strategy.run([](ReplicaContext& replica) { return replica.replica_id(); });
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  strategy.run([calls = 0](ReplicaContext&) mutable { return ++calls; });
#endif
}
