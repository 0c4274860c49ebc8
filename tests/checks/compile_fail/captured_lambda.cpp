// A captured function is not called again, so the values in it would never change.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void capture_lambda(MirroredStrategy& strategy) {
  CudaGraph plain([](ReplicaContext&) {});
  strategy.run(plain);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  int calls = 0;
  CudaGraph counting([&calls](ReplicaContext&) { ++calls; });
#endif
}
