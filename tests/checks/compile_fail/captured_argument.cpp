// A graph accepts only comparable constants and state whose tensors are visible.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

struct Counter {
  torch::Tensor count;
};

void capture_argument(MirroredStrategy& strategy) {
  auto tensors = strategy.scope([](ReplicaContext&) { return torch::Tensor(); });
  CudaGraph seen([](ReplicaContext&, torch::Tensor&) {});
  strategy.run(seen, tensors);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  auto counters = strategy.scope([](ReplicaContext&) { return Counter(); });
  CudaGraph unseen([](ReplicaContext&, Counter&) {});
  strategy.run(unseen, counters);
#endif
}
