// The same for an optimizer, even if the function would take it as a constant.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

#include <torch/optim/sgd.h>

using namespace lockstep;

void forget_scope_of_optimizer(MirroredStrategy& strategy, std::vector<torch::Tensor> parameters) {
  auto optimizer = strategy.scope([&](ReplicaContext&) { return torch::optim::SGD(parameters, 0.1); });
  strategy.run([](ReplicaContext&, const torch::optim::SGD&) {}, optimizer);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  torch::optim::SGD plain(parameters, 0.1);
  strategy.run([](ReplicaContext&, const torch::optim::SGD&) {}, plain);
#endif
}
