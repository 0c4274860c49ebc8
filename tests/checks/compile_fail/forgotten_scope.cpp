// A module or an optimizer that scope did not make would be one object for all replicas.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

#include <torch/nn/modules/linear.h>

using namespace lockstep;

void forget_scope(MirroredStrategy& strategy) {
  const auto step = [](ReplicaContext&, torch::nn::Linear& model) { model->zero_grad(); };
  auto mirrored = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 2); });
  strategy.run(step, mirrored);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  torch::nn::Linear plain(2, 2);
  strategy.run(step, plain);
#endif
}
