// A replay returns only tensors: a number would stay that of the captured call forever.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

void capture_number(MirroredStrategy& strategy) {
  CudaGraph tensor([](ReplicaContext&) { return torch::Tensor(); });
  strategy.run(tensor);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  CudaGraph number([](ReplicaContext&) { return 1.0; });
  strategy.run(number);
#endif
}
