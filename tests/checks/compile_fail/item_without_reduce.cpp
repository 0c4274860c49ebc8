// One loss per replica is not one number: the caller must say which, or how to combine them.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

double loss_of(MirroredStrategy& strategy) {
  auto losses = strategy.run([](ReplicaContext&) { return torch::ones({}); });
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  return losses.item<double>();
#endif
  return strategy.reduce(ReduceOp::kSum, losses).item<double>();
}
