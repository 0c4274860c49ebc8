// A replay gives tensors only: a number would be the captured call's for ever.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void capture(MirroredStrategy& strategy) {
  CudaGraph tensor([](ReplicaContext&) { return torch::Tensor(); });
  strategy.run(tensor);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  CudaGraph number([](ReplicaContext&) { return 1.0; });
  strategy.run(number);
#endif
}
