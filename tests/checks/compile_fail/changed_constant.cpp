// What is neither Mirrored nor PerReplica is shared by the replicas, and comes as a constant.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void count(MirroredStrategy& strategy) {
  const auto increment = [](ReplicaContext&, int& value) { ++value; };
  auto own = strategy.scope([](ReplicaContext&) { return 0; });
  strategy.run(increment, own);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  int shared = 0;
  strategy.run(increment, shared);
#endif
}
