// One loss a replica is no number: which of them, or what of all, must be said.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

double loss_of(MirroredStrategy& strategy) {
  auto losses = strategy.run([](ReplicaContext&) { return torch::ones({}); });
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  return losses.item<double>();
#endif
  return strategy.reduce(ReduceOp::kSum, losses).item<double>();
}
