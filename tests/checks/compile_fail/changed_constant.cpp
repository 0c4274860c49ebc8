// The replicas share every argument that is neither Mirrored nor PerReplica, and get it as a constant.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void change_constant(MirroredStrategy& strategy) {
  const auto increment = [](ReplicaContext&, int& value) { ++value; };
  auto own = strategy.scope([](ReplicaContext&) { return 0; });
  strategy.run(increment, own);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  int shared = 0;
  strategy.run(increment, shared);
#endif
}
